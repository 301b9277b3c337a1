// Command sim plays seeds of internal/sim on all processors, until one fails or all have passed.
//
// It exits with 0 if everything has passed, 1 after a failure, 2 if the flags are wrong, and 130 if
// it was interrupted before. An interrupt ends it soon, with a report of all results; a second one
// ends it at once.
//
// Concurrency: workers in their own goroutines play the seeds, each world on a goroutine that is
// abandoned if it does not end; the main goroutine displays the progress.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/tagmatch/tagmatch/internal/invariant"
	"github.com/tagmatch/tagmatch/internal/sim"
)

func main() {
	debug.SetGCPercent(400) // worlds are many and small
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, func() {
		stop() // the next signal kills
		fmt.Fprintln(os.Stderr, "\nsim: ends when the worlds under way have ended; interrupt again to end at once")
	})
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// command is one use of the program.
type command struct {
	*flags
	stdout *output
	stderr io.Writer
	world  world
}

// world plays a plan, as sim.Run does.
type world func(p *sim.Plan, log io.Writer) (*sim.Outcome, error)

// The exit codes besides 0.
const (
	exitFails       = 1
	exitUsage       = 2
	exitInterrupted = 130 // as a shell reports a program that SIGINT ended
)

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	f, err := parse(args, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		fmt.Fprintf(stderr, "sim: %v (-h lists the flags)\n", err)
		return exitUsage
	}
	c := &command{flags: f, stdout: &output{w: stdout}, stderr: stderr, world: sim.Run}
	return c.run(ctx)
}

func (c *command) run(ctx context.Context) int {
	var err error
	if c.alone() {
		err = c.replay(ctx)
	} else {
		err = c.campaign(ctx)
	}
	if lost := c.stdout.close(); lost != nil && !errors.Is(err, lost) {
		err = errors.Join(err, lost)
	}
	if err == nil {
		return 0
	}
	fmt.Fprintf(c.stderr, "sim: %v\n", err)
	if errors.Is(err, errInterrupted) {
		return exitInterrupted
	}
	return exitFails
}

// planOf is the plan of a seed, on the devices that the flags ask for.
func (c *command) planOf(seed uint64) *sim.Plan {
	p := sim.NewPlan(seed)
	p.Params.NIC = c.nic
	return p
}

// replay plays one plan.
func (c *command) replay(ctx context.Context) error {
	p := c.planOf(c.seed)
	if c.plan != "" {
		var err error
		if p, err = sim.Load(c.plan); err != nil {
			return err
		}
	}
	var log io.Writer
	if c.verbose {
		fmt.Fprintf(c.stdout, "%s\n", p)
		log = c.stdout
	}
	out, err := c.play(ctx, p, log)
	if errors.Is(err, errInterrupted) {
		return err
	}
	if err != nil {
		return c.explain(ctx, p, err)
	}
	fmt.Fprintf(c.stdout, "passed; trace %016x\n", out.Trace)
	return nil
}

// campaign plays many seeds.
func (c *command) campaign(ctx context.Context) error {
	checks := "without the invariants of the build tag"
	if invariant.Enabled {
		checks = "with the invariants of the build"
	}
	if _, err := fmt.Fprintf(c.stdout, "seeds from %d, %d worlds at once, %s\n", c.first, c.workers, checks); err != nil {
		return err
	}
	all := &campaign{command: c, start: time.Now()}
	all.run(ctx)
	fmt.Fprintf(c.stdout, "%d seeds in %v\n%s", all.played, all.took.Round(time.Millisecond), &all.coverage)
	if all.err != nil {
		fmt.Fprintf(c.stdout, "\nseed %d fails\n", all.failed)
		err := c.explain(ctx, c.planOf(all.failed), all.err)
		if errors.Is(err, sim.ErrUnsteady) {
			nic := ""
			if c.nic {
				nic = " -nic"
			}
			err = fmt.Errorf("%w\nit was found with: -first %d -seeds %d -j %d%s", err, c.first, all.failed-c.first+1, c.workers, nic)
		}
		return err
	}
	left := c.seeds - all.played
	if left > 0 && ctx.Err() != nil {
		return fmt.Errorf("%w: %d seeds of %d were not played", errInterrupted, left, c.seeds)
	}
	if left > 0 {
		fmt.Fprintf(c.stdout, "the time of -budget is over: %d seeds of %d were not played\n", left, c.seeds)
	}
	return missing(all.played, all.coverage.Missing(c.nic))
}

// missing is the error if so many seeds should have reached some event and did not.
func missing(seeds uint64, list []sim.Event) error {
	if seeds >= enough && len(list) > 0 {
		return fmt.Errorf("%d seeds never came to: %v", seeds, list)
	}
	return nil
}
