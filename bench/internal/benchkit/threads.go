package benchkit

import (
	"flag"
	"fmt"
	"slices"
	"sync"
	"time"
)

// pairs is the flag of tests by several goroutines of each rank, each of which exchanges messages
// with its like.
type pairs struct{ Goroutines Counts }

func (p *pairs) register(fs *flag.FlagSet) {
	fs.Var(&p.Goroutines, "goroutines", "`numbers` of goroutines of each rank, each of which exchanges messages with its like")
}

const maxGoroutines = 1 << 16

func (p *pairs) faults() []error {
	if most := slices.Max(p.Goroutines); most > maxGoroutines {
		return []error{fmt.Errorf("-goroutines has %d: give 1 to %d", most, maxGoroutines)}
	}
	return nil
}

// inParallel runs f with 0 to n-1 in a goroutine each, one of them alone in the caller's. It
// returns the first error at once: what the others wait for ends with the World.
func inParallel(n int, f func(i int) error) error {
	if n == 1 {
		return f(0)
	}
	errs := make(chan error, n)
	for i := range n {
		go func() { errs <- f(i) }()
	}
	for range n {
		if err := <-errs; err != nil {
			return err
		}
	}
	return nil
}

// Threads measures half round trips of pairs of goroutines at once, each with tags of its own, and
// the messages a second of all together. The pairs share the messages; percentiles are of the
// first.
type Threads struct {
	Verified
	pairs
}

// NewThreads has the defaults.
func NewThreads() *Threads {
	t := &Threads{pairs: pairs{Counts{1, 4, 8, 64, 1024}}}
	t.Sizes = Sizes{8}
	return t
}

// Register adds the flags.
func (t *Threads) Register(fs *flag.FlagSet) { t.Verified.Register(fs); t.register(fs) }

// Faults of the flags.
func (t *Threads) Faults() []error { return append(t.Verified.Faults(), t.faults()...) }

// Run measures a size.
func (t *Threads) Run(s *Session, size, iters int) error {
	for _, n := range t.Goroutines {
		if err := s.Report(t.measure(s, size, iters, n)); err != nil {
			return err
		}
	}
	return nil
}

// leastRounds are enough for each of many pairs to be at work at once.
const leastRounds = 20

func (t *Threads) measure(s *Session, size, iters, n int) (Result, error) {
	loops, each := make([]*loop, n), max(iters/n, leastRounds)
	var ready sync.WaitGroup
	ready.Add(n)
	err := inParallel(n, func(i int) error {
		here := sync.OnceFunc(ready.Done)
		defer here() // with an error before the others' clocks have started
		l := newLoop(s, size, each, t.Check)
		l.first, l.pair = s.First && i == 0, i
		l.start = func() { here(); ready.Wait() }
		loops[i] = l
		if err := bounce(s.World, l); err != nil {
			return err
		}
		return l.err
	})
	if err != nil {
		return Result{}, err
	}
	r := s.Result("threads", size, each, span(loops)/2)
	r.Percentiles(loops[0].hist, 2)
	r.Goroutines, r.Iters = n, each*n
	r.MsgS *= float64(n)
	r.MBs *= float64(n)
	return r, nil
}

// span is the time from the start of the first clock until all rounds under the clock were done.
func span(loops []*loop) time.Duration {
	from, to := loops[0].began, loops[0].began
	for _, l := range loops {
		if l.began.Before(from) {
			from = l.began
		}
		if end := l.began.Add(l.elapsed); end.After(to) {
			to = end
		}
	}
	return to.Sub(from)
}
