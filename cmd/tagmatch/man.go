package main

import (
	"errors"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

const manHelp = `Man writes a manual page of each command into a directory, which it makes where
there is none: tagmatch.1, tagmatch-run.1 and so on. man -l shows one. Into
/usr/local/share/man/man1, or ~/.local/share/man/man1, they are installed.`

// newMan writes the manual pages of all commands of root.
func newMan(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:   "man DIR",
		Short: "Write the manual pages of all commands",
		Long:  manHelp,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return errors.New("name one directory: tagmatch help man DIR")
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			err := os.MkdirAll(args[0], 0o755)
			if err == nil {
				root.DisableAutoGenTag = true
				err = doc.GenManTree(root, &doc.GenManHeader{Section: "1", Source: "tagmatch " + root.Version, Manual: "tagmatch"}, args[0])
			}
			return failed(err)
		},
	}
}
