package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/tagmatch/tagmatch/internal/sim"
)

// explain shrinks a failing plan, prints it, and returns the failure with the command to repeat it.
func (c *command) explain(ctx context.Context, p *sim.Plan, err error) error {
	small := p
	if errors.Is(err, errHangs) {
		c.dump(c.what(p))
	} else if c.shrink > 0 {
		if small, err = c.smaller(ctx, p, err); small != p || !c.verbose {
			fmt.Fprintf(c.stdout, "%s", small)
		}
	}
	if small == p && c.plan != "" {
		return fmt.Errorf("%w\nseed %d; replay it with: %s", err, p.Seed, sim.Replay("-plan "+c.plan))
	}
	return c.saved(small, err, fmt.Sprintf("seed %d; replay what is left of it", p.Seed))
}

// what names a plan.
func (c *command) what(p *sim.Plan) string {
	if c.plan != "" {
		return "the plan in " + c.plan
	}
	return fmt.Sprintf("seed %d", p.Seed)
}

// dump prints the stacks of all goroutines, those of abandoned worlds included.
func (c *command) dump(what string) {
	fmt.Fprintf(c.stderr, "sim: %s does not end:\n%s\n", what, stacks())
}

// smaller shrinks a plan, unless a smaller one hangs: that may be as bad, and is reported too.
func (c *command) smaller(ctx context.Context, p *sim.Plan, err error) (*sim.Plan, error) {
	until, stop := context.WithTimeout(ctx, c.shrink)
	defer stop()
	var hangs *sim.Plan
	small, err := sim.Shrink(until, p, err, func(q *sim.Plan) error {
		_, err := c.play(ctx, q, nil)
		switch {
		case errors.Is(err, errInterrupted):
			return nil
		case errors.Is(err, errHangs):
			hangs = q
			stop()
			return nil
		}
		return err
	})
	switch {
	case hangs == nil:
		return small, err
	case hangs == p:
		c.dump(c.what(p) + ", played again,")
		return p, fmt.Errorf("%w\n%w: when played again, %w", err, sim.ErrUnsteady, errHangs)
	}
	c.dump("a smaller plan of " + c.what(p))
	return small, c.saved(hangs, fmt.Errorf("%w\na smaller plan fails otherwise: %w", err, errHangs), "replay that")
}

// saved writes a plan to a new file and returns how to play it.
func (c *command) saved(p *sim.Plan, err error, how string) error {
	file, failed := p.SaveNew(os.TempDir())
	if failed != nil {
		return fmt.Errorf("%w\nseed %d; its plan could not be saved: %w", err, p.Seed, failed)
	}
	return fmt.Errorf("%w\n%s with: %s", err, how, sim.Replay("-plan "+file))
}
