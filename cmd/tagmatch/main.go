// Command tagmatch starts jobs (`tagmatch run`), looks into those that run (`tagmatch ps`, `dump`,
// `top`, `metrics`, `trace`), and shows what a job would use here (`tagmatch info`).
//
// Concurrency: each command runs on the main goroutine; internal/launch supervises the ranks of
// `run`.
//
// Neither the commands' output nor their flags carry a compatibility promise yet.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
)

// Exit codes of tagmatch itself; `run` otherwise exits with the job's.
const (
	exitFailed = 1
	exitUsage  = 2
)

func main() { os.Exit(execute(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }

// execute runs one command and returns the exit code.
func execute(args []string, in *os.File, out, errs io.Writer) int {
	root := newRoot(in)
	root.SetArgs(longJSON(args))
	root.SetOut(out)
	root.SetErr(errs)
	root.InitDefaultCompletionCmd() // which keeps the output that is set by then
	completion, _, _ := root.Find([]string{"completion"})
	completion.RunE = func(*cobra.Command, []string) error {
		return errors.New("name one shell: tagmatch completion bash, zsh, fish or powershell")
	}
	c, err := root.ExecuteC()
	if err == nil {
		return 0
	}
	if e, ok := errors.AsType[*exitError](err); ok {
		if e.err != nil {
			fmt.Fprintln(errs, "tagmatch:", e.err)
		}
		return e.code
	}
	fmt.Fprintln(errs, "tagmatch:", err)
	fmt.Fprintf(errs, "Run '%s -h' for usage.\n", c.CommandPath())
	return exitUsage
}

// exitError ends the command with its exit code; with err nil the error was printed already.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string { return fmt.Sprintf("exit code %d: %v", e.code, e.err) }
func (e *exitError) Unwrap() error { return e.err }

func newRoot(in *os.File) *cobra.Command {
	root := &cobra.Command{
		Use:   "tagmatch",
		Short: "Start message-passing jobs on this host, and look at what they find here",
		Long: `tagmatch starts programs that use the tagmatch messaging runtime as several
ranks on this host, or on others by ssh, and shows devices, launcher and
configuration.

  tagmatch run -n 4 ./prog    start four ranks of ./prog
  tagmatch ps                 the ranks that run here
  tagmatch dump               why a job hangs, and what its ranks do
  tagmatch top                a live table of their messages
  tagmatch metrics            counters of the ranks that run here, for Prometheus
  tagmatch trace              record what they do for a while, for Perfetto
  tagmatch info               what a rank started here would work with`,
		Version:       readStamp().String(),
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.SetFlagErrorFunc(inPlainWords)
	root.SetVersionTemplate("tagmatch {{.Version}}\n")
	root.AddCommand(newRun(in), newInfo(), newPs(), newDump(), newTop(in), newMetrics(), newTrace(), newVersion())
	root.InitDefaultHelpCmd()
	help, _, _ := root.Find([]string{"help"})
	help.AddCommand(newMan(root))
	return root
}

// longJSON accepts `info -json`, as the benchmark and the examples do, which use package flag.
func longJSON(args []string) []string {
	if len(args) == 0 || args[0] != "info" {
		return args
	}
	list := append([]string{}, args...)
	for i, a := range list {
		if a == "-json" {
			list[i] = "--json"
		}
	}
	return list
}
