// Command mutate verifies that the tests catch each bug of internal/mutations: it builds them with
// the bug in the source text, by the go command's -overlay, and runs them. The tree stays as it is,
// and must while this runs. It exits with 0 where every bug is caught, 1 where one is not, and 2
// where it could not find out.
//
// Concurrency: -p goroutines build, at a low priority, and take turns to run what they have built,
// one test at a time: some bugs show only where a test has two processors.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"github.com/tagmatch/tagmatch/internal/mutations"
)

const usage = `Usage: mutate [-show] -all | -since COMMIT | NAME...
It runs the tests that must catch the bugs of internal/mutations/bugs: of all, of the packages that were touched since COMMIT, or of
those whose names begin so.
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	mod, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutate: go env GOMOD:", err)
		os.Exit(2)
	}
	os.Exit(run(ctx, filepath.Dir(string(mod)), os.Args[1:], os.Stdout, os.Stderr))
}

// job is a mutation, and those of its commands that are to be run.
type job struct {
	m        *mutations.Mutation
	commands []mutations.Command
	texts    map[string]string // of the files with the bug in them
}

// run does it for the module in root.
func run(ctx context.Context, root string, args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("mutate", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() { fmt.Fprint(stderr, usage); flags.PrintDefaults() }
	all := flags.Bool("all", false, "all bugs")
	since := flags.String("since", "", "the bugs of packages touched since the branch left `COMMIT`, and the tests touched since then")
	show := flags.Bool("show", false, "print what the tests print")
	workers := flags.Int("p", runtime.NumCPU(), "build so many at once")
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return 0
	} else if err != nil {
		return 2
	}
	ways := 0
	for _, given := range []bool{*all, *since != "", flags.NArg() != 0} {
		if given {
			ways++
		}
	}
	if ways != 1 || *workers < 1 {
		flags.Usage()
		return 2
	}
	jobs, err := load(root)
	switch {
	case err != nil:
	case *since != "":
		jobs, err = touched(ctx, root, *since, jobs)
	case !*all:
		jobs, err = named(flags.Args(), jobs)
	}
	if err != nil {
		fmt.Fprintln(stderr, "mutate:", err)
		return 2
	}
	work, err := os.MkdirTemp("", "mutate")
	if err != nil {
		fmt.Fprintln(stderr, "mutate:", err)
		return 2
	}
	defer os.RemoveAll(work) //nolint:errcheck // what is left is in the system's directory for that
	r := &runner{ctx: ctx, root: root, work: work, show: *show, out: stdout, start: time.Now()}
	caught, err := r.all(jobs, *workers)
	if err != nil {
		fmt.Fprintln(stderr, "mutate:", err)
		return 1
	}
	fmt.Fprintf(stdout, "%d bugs, all caught, in %.0fs\n", caught, time.Since(r.start).Seconds())
	return 0
}
