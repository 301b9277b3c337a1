package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"

	"github.com/tagmatch/tagmatch/bench/internal/benchkit"
	"github.com/tagmatch/tagmatch/bench/internal/hop"
	"github.com/tagmatch/tagmatch/bench/internal/limits"
)

const limitsAbout = `bench limits: what this machine can do at best, each part of a message alone.

Each is measured by two processes pinned to a processor each (yield: both to one). Latencies are half round trips, the
median of 100 parts of the run; MB are 10^6 bytes. Buffers stay in the cache.

`

// limitsCommand runs the subcommand and returns its exit code.
func limitsCommand(args []string, stdout, stderr io.Writer) int {
	if len(args) > 0 && args[0] == limits.Second {
		if err := limits.Serve(args[1:]); err != nil {
			fmt.Fprintf(stderr, "bench limits: %v\n", err)
			return 1
		}
		return 0
	}
	only, iters, out := list(limits.Names()), 0, benchkit.Table{Out: stdout, About: "half round trips, and copies; -h says of what"}
	fs := flag.NewFlagSet("bench limits", flag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.Usage = func() {
		fmt.Fprint(stderr, limitsAbout)
		for _, name := range limits.Names() {
			fmt.Fprintf(stderr, "  %-8s %s\n", name, limits.About(name))
		}
		fmt.Fprintf(stderr, "\nFlags:\n")
		fs.PrintDefaults()
	}
	fs.Var(&only, "only", "`names` of limits, separated by commas")
	fs.IntVar(&iters, "iters", 0, "messages of each, 0: what takes some 0.2 s")
	fs.BoolVar(&out.JSON, "json", false, "print one JSON object a line instead of text")
	if err := fs.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return 0
		}
		return 2
	}
	var errs []error
	for _, name := range only {
		if !slices.Contains(limits.Names(), name) {
			errs = append(errs, fmt.Errorf("-only: %q is not one of %s", name, strings.Join(limits.Names(), ", ")))
		}
	}
	if iters < 0 || fs.NArg() > 0 {
		errs = append(errs, fmt.Errorf("-iters is %d and there are %d more arguments: give 1 or more, or 0, and none", iters, fs.NArg()))
	}
	if err := errors.Join(errs...); err != nil {
		fmt.Fprintf(stderr, "bench limits: %v\n", err)
		return 2
	}
	if err := measureLimits(only, iters, &out); err != nil {
		fmt.Fprintf(stderr, "bench limits: %v\n", err)
		return 1
	}
	return 0
}

func measureLimits(names []string, iters int, out *benchkit.Table) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	cpus, err := hop.Processors()
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	// With one processor the second is the same: yield needs no other.
	pair := [2]int{cpus[0], cpus[min(1, len(cpus)-1)]}
	for _, name := range names {
		if len(cpus) < 2 && name != "yield" {
			return fmt.Errorf("%s takes two processors, and this process may use one", name)
		}
		err := limits.Measure(ctx, self, []string{"limits"}, name, iters, pair, func(l limits.Line) error { return out.Print(&l) })
		if err != nil {
			return err
		}
	}
	return nil
}
