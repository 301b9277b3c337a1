package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tagmatch/tagmatch/internal/sim"
)

// campaign is many seeds, played by several workers.
type campaign struct {
	*command
	start time.Time
	took  time.Duration
	mu    struct {
		sync.Mutex
		next   uint64 // next seed to play
		stop   bool   // no further seeds
		done   uint64 // seeds played
		failed uint64 // the lowest that failed
		err    error  // its error
		cov    sim.Coverage
	}
	played   uint64
	failed   uint64
	err      error
	coverage sim.Coverage
}

// run plays all seeds, until one fails or ctx is over.
func (c *campaign) run(ctx context.Context) {
	done := make(chan struct{})
	var workers sync.WaitGroup
	for range c.workers {
		workers.Go(func() { c.work(ctx) })
	}
	go func() {
		workers.Wait()
		close(done)
	}()
	tick := time.NewTicker(10 * time.Second)
	defer tick.Stop()
	for ended := false; !ended; {
		select {
		case <-done:
			ended = true
		case <-tick.C:
			c.mu.Lock()
			n := c.mu.done
			c.mu.Unlock()
			c.show(n, time.Since(c.start))
		}
	}
	c.took = time.Since(c.start)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.played, c.failed, c.err, c.coverage = c.mu.done, c.mu.failed, c.mu.err, c.mu.cov
}

// show displays that n seeds were played in a time.
func (c *campaign) show(n uint64, took time.Duration) {
	fmt.Fprintf(c.stderr, "sim: %d of %d seeds%s\n", n, c.seeds, rate(n, took))
}

// rate is the number of seeds per time, once it can be estimated.
func rate(n uint64, took time.Duration) string {
	if took < time.Second {
		return ""
	}
	return fmt.Sprintf(", %.0f a second", float64(n)/took.Seconds())
}

func (c *campaign) work(ctx context.Context) {
	for {
		seed, ok := c.take(ctx)
		if !ok {
			return
		}
		out, err := c.play(ctx, c.planOf(seed), nil)
		if errors.Is(err, errInterrupted) {
			return
		}
		c.mu.Lock()
		c.mu.done++
		if err != nil {
			c.mu.stop = true
			if c.mu.err == nil {
				c.mu.failed, c.mu.err = seed, err
			}
		} else {
			c.mu.cov.Add(&out.Coverage)
		}
		c.mu.Unlock()
	}
}

// take returns the next seed, while there are some and time is left.
func (c *campaign) take(ctx context.Context) (seed uint64, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	late := c.budget > 0 && time.Since(c.start) > c.budget
	if c.mu.stop || late || c.mu.next == c.seeds || ctx.Err() != nil {
		return 0, false
	}
	seed = c.first + c.mu.next
	c.mu.next++
	return seed, true
}
