package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"time"

	"github.com/tagmatch/tagmatch/internal/sim"
)

var (
	errHangs       = errors.New("it does not end")
	errInterrupted = errors.New("interrupted")
)

// patience is much more than any world needs.
const patience = 5 * time.Minute

// grace is the time that a world has to end after an interrupt.
const grace = 5 * time.Second

// play plays a plan. A world that does not end, or not soon after an interrupt (the end of ctx), is
// abandoned.
func (c *command) play(ctx context.Context, p *sim.Plan, log io.Writer) (*sim.Outcome, error) {
	var out *sim.Outcome
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		out, err = c.world(p, log)
	}()
	// The time is counted in parts: a part in which this process was stopped may be long, but is
	// only one.
	const parts = 10
	part := time.NewTicker(c.patience / parts)
	defer part.Stop()
	var late <-chan time.Time
	interrupt := ctx.Done()
	for n := 0; n < parts; {
		select {
		case <-done:
			return out, err
		case <-part.C:
			n++
		case <-interrupt:
			interrupt, late = nil, time.After(grace)
		case <-late:
			return nil, errInterrupted
		}
	}
	return nil, fmt.Errorf("%w: it has been played for %v", errHangs, c.patience)
}

// stacks returns the stacks of all goroutines.
func stacks() []byte {
	for b := make([]byte, 1<<16); ; b = make([]byte, 2*len(b)) {
		if n := runtime.Stack(b, true); n < len(b) {
			return b[:n]
		}
	}
}
