package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"

	"github.com/tagmatch/tagmatch/internal/sim"
)

// campaign is many seeds, played by several workers.
type campaign struct {
	f     *flags
	start time.Time
	took  time.Duration
	mu    struct {
		sync.Mutex
		next    uint64    // seeds given out
		stop    bool      // give out no more
		running []running // by worker
		done    uint64    // seeds played
		failed  uint64    // the first that failed
		err     error     // how
		cov     sim.Coverage
	}
	played   uint64
	failed   uint64
	err      error
	coverage sim.Coverage
}

type running struct {
	seed  uint64
	since time.Time // zero: none
}

var errHangs = errors.New("the seed does not end")

// patience is much more than any world takes.
const patience = 5 * time.Minute

func newCampaign(f *flags) *campaign {
	c := &campaign{f: f, start: time.Now()}
	c.mu.running = make([]running, f.workers)
	return c
}

// play plays all seeds, until one fails. A world that never ends is left behind.
func (c *campaign) play(stderr io.Writer) {
	done := make(chan struct{})
	var workers sync.WaitGroup
	for i := range c.f.workers {
		workers.Go(func() { c.work(i) })
	}
	go func() {
		workers.Wait()
		close(done)
	}()
	show, every := c.display(stderr)
	tick := time.NewTicker(every)
	defer tick.Stop()
	for ended := false; !ended; {
		select {
		case <-done:
			ended = true
		case <-tick.C:
			ended = c.hangs()
		}
		c.mu.Lock()
		n := c.mu.done
		c.mu.Unlock()
		show(n, ended)
	}
	c.took = time.Since(c.start)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.played, c.failed, c.err, c.coverage = c.mu.done, c.mu.failed, c.mu.err, c.mu.cov
}

// display gives what shows n seeds played, and how often it wants to: a bar on a terminal, else a line now and then.
func (c *campaign) display(stderr io.Writer) (show func(n uint64, last bool), every time.Duration) {
	if f, ok := stderr.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		bar := progressbar.NewOptions64(int64(c.f.seeds), progressbar.OptionSetWriter(stderr), progressbar.OptionShowCount(),
			progressbar.OptionShowIts(), progressbar.OptionSetItsString("seeds"), progressbar.OptionSetDescription("sim"))
		return func(n uint64, last bool) {
			_ = bar.Set64(int64(n))
			if last {
				_ = bar.Exit()
				fmt.Fprintln(stderr)
			}
		}, 200 * time.Millisecond
	}
	return func(n uint64, last bool) {
		if !last {
			rate := float64(n) / time.Since(c.start).Seconds()
			fmt.Fprintf(stderr, "sim: %d of %d seeds, %.0f a second\n", n, c.f.seeds, rate)
		}
	}, 10 * time.Second
}

// hangs tells whether some world has been played for too long.
func (c *campaign) hangs() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.mu.running {
		if !r.since.IsZero() && time.Since(r.since) > patience && c.mu.err == nil {
			c.mu.stop, c.mu.failed, c.mu.err = true, r.seed, fmt.Errorf("%w: it has run for %v", errHangs, patience)
			return true
		}
	}
	return false
}

func (c *campaign) work(i int) {
	for {
		seed, ok := c.take(i)
		if !ok {
			return
		}
		out, err := sim.Run(sim.NewPlan(seed), nil)
		c.mu.Lock()
		c.mu.running[i] = running{}
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

// take gives worker i a seed, while there are some and time is left.
func (c *campaign) take(i int) (seed uint64, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	late := c.f.budget > 0 && time.Since(c.start) > c.f.budget
	if c.mu.stop || late || c.mu.next == c.f.seeds {
		return 0, false
	}
	seed = c.f.first + c.mu.next
	c.mu.next++
	c.mu.running[i] = running{seed, time.Now()}
	return seed, true
}
