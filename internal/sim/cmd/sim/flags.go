package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"time"
)

type flags struct {
	seeds    uint64
	first    uint64
	seed     uint64
	plan     string
	nic      bool
	workers  int
	verbose  bool
	budget   time.Duration
	shrink   time.Duration
	patience time.Duration
	given    map[string]bool // the flags on the command line, by name
}

// enough seeds reach every event, even the rarest a hundred times.
const enough = 20000

func parse(args []string, stderr io.Writer) (*flags, error) {
	f := &flags{given: map[string]bool{}}
	fs := flag.NewFlagSet("sim", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.Usage = func() {}
	fs.Uint64Var(&f.seeds, "seeds", enough, "how many `seeds` to play")
	fs.Uint64Var(&f.first, "first", 0, "the first `seed`, 0: a random one")
	fs.Uint64Var(&f.seed, "seed", 0, "play this `seed` alone")
	fs.StringVar(&f.plan, "plan", "", "play the plan in this `file` alone, as it was written for a failing seed")
	fs.BoolVar(&f.nic, "nic", false, "play the seeds on devices that behave as network adapters do")
	fs.IntVar(&f.workers, "j", runtime.GOMAXPROCS(0), "how many `worlds` to play at once")
	fs.BoolVar(&f.verbose, "v", false, "with -seed and -plan, print the plan and all that happens")
	fs.DurationVar(&f.budget, "budget", 0, "stop after this `time` even if seeds are left, 0: never")
	fs.DurationVar(&f.shrink, "shrink", time.Minute,
		"spend at most this `time` to make a failing plan smaller, 0: none; with -plan only if it is given")
	fs.DurationVar(&f.patience, "patience", patience, "a world that has not ended after this `time` has failed: it hangs")
	err := fs.Parse(args)
	fs.Visit(func(set *flag.Flag) { f.given[set.Name] = true })
	switch {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprintf(stderr, "sim: play random worlds of ranks against a model of matching\n\nFlags:\n")
		fs.SetOutput(stderr)
		fs.PrintDefaults()
		return nil, err
	case err != nil:
		return nil, err
	case fs.NArg() > 0:
		return nil, fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	if err := errors.Join(f.contradict(), f.outOfRange()); err != nil {
		return nil, err
	}
	if f.given["plan"] && !f.given["shrink"] {
		f.shrink = 0 // it is small already, or is to be played unchanged
	}
	for f.first == 0 {
		f.first = rand.Uint64()
	}
	return f, nil
}

// alone reports whether a single plan is played.
func (f *flags) alone() bool { return f.given["seed"] || f.given["plan"] }

// contradict returns an error for flags that exclude each other.
func (f *flags) contradict() error {
	if f.given["plan"] && f.given["seed"] {
		return errors.New("-plan and -seed exclude each other")
	}
	if f.nic && f.given["plan"] {
		return errors.New("-nic is for seeds: a plan says itself what its devices are")
	}
	if f.verbose && !f.alone() {
		return errors.New("-v is for -seed and -plan")
	}
	for _, many := range []string{"seeds", "first", "j", "budget"} {
		for _, one := range []string{"seed", "plan"} {
			if f.given[many] && f.given[one] {
				return fmt.Errorf("-%s is for many seeds, -%s plays one world: leave one of them out", many, one)
			}
		}
	}
	return nil
}

func (f *flags) outOfRange() error {
	switch {
	case f.seeds == 0:
		return errors.New("-seeds is 0: give 1 or more")
	case f.workers < 1:
		return fmt.Errorf("-j is %d: give 1 or more", f.workers)
	case f.budget < 0:
		return fmt.Errorf("-budget is %v: give a time, or 0 for no end", f.budget)
	case f.shrink < 0:
		return fmt.Errorf("-shrink is %v: give a time, or 0 for none", f.shrink)
	case f.patience < time.Millisecond:
		return fmt.Errorf("-patience is %v: give 1ms or more", f.patience)
	case f.given["plan"] && f.plan == "":
		return errors.New("-plan names no file")
	}
	return nil
}
