package main

import (
	"errors"

	"github.com/spf13/cobra"
)

const completionHelp = `Completion prints a script that has a shell complete the commands and flags of
tagmatch. For this shell alone:

  bash:  source <(tagmatch completion bash)     # needs the package bash-completion
  zsh:   source <(tagmatch completion zsh)      # behind compinit
  fish:  tagmatch completion fish | source

For every one write it to a file of the directory in which the shell looks, as
/etc/bash_completion.d/tagmatch, _tagmatch in a directory of $fpath, or
~/.config/fish/completions/tagmatch.fish.`

func newCompletion() *cobra.Command {
	return &cobra.Command{
		Use:                   "completion bash|zsh|fish",
		Short:                 "Print a script for the completion of commands and flags in a shell",
		Long:                  completionHelp,
		ValidArgs:             []string{"bash", "zsh", "fish"},
		DisableFlagsInUseLine: true,
		Args: func(c *cobra.Command, args []string) error {
			if cobra.MatchAll(cobra.ExactArgs(1), cobra.OnlyValidArgs)(c, args) != nil {
				return errors.New("name one shell: tagmatch completion bash, zsh or fish")
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) (err error) {
			switch root, out := c.Root(), c.OutOrStdout(); args[0] {
			case "bash":
				err = root.GenBashCompletionV2(out, true)
			case "zsh":
				err = root.GenZshCompletion(out)
			case "fish":
				err = root.GenFishCompletion(out, true)
			}
			if err != nil {
				return &exitError{exitFailed, err}
			}
			return nil
		},
	}
}
