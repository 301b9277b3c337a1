// Command sim plays seeds of internal/sim on all processors, until one fails or all have passed.
//
// Concurrency: workers of their own goroutines play the seeds, the main goroutine shows how far they are.
//
// Neither its output nor its flags carry a compatibility promise.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/tagmatch/tagmatch/internal/invariant"
	"github.com/tagmatch/tagmatch/internal/sim"
)

func main() {
	debug.SetGCPercent(400) // worlds are many and small
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

type flags struct {
	seeds   uint64
	first   uint64
	seed    uint64
	alone   bool // play seed and nothing else
	plan    string
	workers int
	verbose bool
	budget  time.Duration
	shrink  time.Duration
}

func run(args []string, stdout, stderr io.Writer) int {
	f, err := parse(args, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		fmt.Fprintf(stderr, "sim: %v (-h lists the flags)\n", err)
		return 2
	}
	if f.plan != "" || f.alone {
		err = f.replay(stdout)
	} else {
		err = f.campaign(stdout, stderr)
	}
	if err != nil {
		fmt.Fprintf(stderr, "sim: %v\n", err)
		return 1
	}
	return 0
}

func parse(args []string, stderr io.Writer) (*flags, error) {
	f := &flags{}
	fs := flag.NewFlagSet("sim", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.Usage = func() {}
	fs.Uint64Var(&f.seeds, "seeds", enough, "how many `seeds` to play")
	fs.Uint64Var(&f.first, "first", 0, "the first `seed`, 0: a random one")
	fs.Uint64Var(&f.seed, "seed", 0, "play this `seed` alone")
	fs.StringVar(&f.plan, "plan", "", "play the plan in this `file` alone, as it was written for a failing seed")
	fs.IntVar(&f.workers, "j", runtime.GOMAXPROCS(0), "how many `worlds` to play at once")
	fs.BoolVar(&f.verbose, "v", false, "with -seed and -plan, print the plan and all that happens")
	fs.DurationVar(&f.budget, "budget", 0, "stop after this `time` even if seeds are left, 0: never")
	fs.DurationVar(&f.shrink, "shrink", time.Minute, "spend at most this `time` to make a failing plan smaller, 0: none")
	err := fs.Parse(args)
	fs.Visit(func(set *flag.Flag) { f.alone = f.alone || set.Name == "seed" })
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
	case f.seeds == 0:
		return nil, errors.New("-seeds is 0: give 1 or more")
	case f.workers < 1:
		return nil, fmt.Errorf("-j is %d: give 1 or more", f.workers)
	case f.plan != "" && f.alone:
		return nil, errors.New("-plan and -seed exclude each other")
	case f.verbose && f.plan == "" && !f.alone:
		return nil, errors.New("-v is for -seed and -plan")
	}
	for f.first == 0 {
		f.first = rand.Uint64()
	}
	return f, nil
}

// replay plays one plan.
func (f *flags) replay(stdout io.Writer) error {
	p := sim.NewPlan(f.seed)
	if f.plan != "" {
		var err error
		if p, err = sim.Load(f.plan); err != nil {
			return err
		}
	}
	var log io.Writer
	if f.verbose {
		fmt.Fprintf(stdout, "%s\n", p)
		log = stdout
	}
	out, err := sim.Run(p, log)
	if err != nil {
		return f.explain(stdout, p, err)
	}
	fmt.Fprintf(stdout, "passed; trace %016x\n", out.Trace)
	return nil
}

// campaign plays many seeds.
func (f *flags) campaign(stdout, stderr io.Writer) error {
	checks := "without the invariants of the build tag"
	if invariant.Enabled {
		checks = "with the invariants of the build"
	}
	fmt.Fprintf(stdout, "seeds from %d, %d worlds at once, %s\n", f.first, f.workers, checks)
	c := newCampaign(f)
	c.play(stderr)
	fmt.Fprintf(stdout, "%d seeds in %v\n%s", c.played, c.took.Round(time.Millisecond), &c.coverage)
	if c.err != nil {
		fmt.Fprintf(stdout, "\nseed %d fails\n", c.failed)
		return f.explain(stdout, sim.NewPlan(c.failed), c.err)
	}
	if c.played < f.seeds {
		fmt.Fprintf(stdout, "the time of -budget is over: %d seeds of %d were not played\n", f.seeds-c.played, f.seeds)
	}
	return missing(c.played, &c.coverage)
}

// enough seeds come to everything, even to the rarest a hundred times.
const enough = 20000

// missing tells what should have happened in so many seeds and did not.
func missing(seeds uint64, coverage *sim.Coverage) error {
	if list := coverage.Missing(); seeds >= enough && len(list) > 0 {
		return fmt.Errorf("%d seeds never came to: %v", seeds, list)
	}
	return nil
}

// explain shrinks a plan that fails, shows it, and returns what fails.
func (f *flags) explain(stdout io.Writer, p *sim.Plan, err error) error {
	if f.shrink > 0 && !errors.Is(err, errHangs) {
		p, err = sim.Shrink(p, f.shrink, func(p *sim.Plan) error { _, err := sim.Run(p, nil); return err })
		fmt.Fprintf(stdout, "%s", p)
	}
	file := filepath.Join(os.TempDir(), fmt.Sprintf("sim-%d.json", p.Seed))
	if saved := p.Save(file); saved != nil {
		return errors.Join(err, saved)
	}
	return fmt.Errorf("%w\nseed %d; replay what is left of it with: %s", err, p.Seed, sim.Replay("-plan "+file))
}
