package benchkit

import (
	"fmt"
	"sync"
	"time"
)

// GoroutineCases are the numbers of goroutines.
func GoroutineCases(f Flags) []Flags {
	return casesOf(f, func(f *Flags) *Counts { return &f.Goroutines })
}

// casesOf is f for each of its counts of one kind.
func casesOf(f Flags, of func(f *Flags) *Counts) []Flags {
	var cases []Flags
	for _, n := range *of(&f) {
		one := f
		*of(&one) = Counts{n}
		cases = append(cases, one)
	}
	return cases
}

// pairs is the number of goroutines of each rank, each of which exchanges messages with its like.
func (s *Session) pairs() int {
	if len(s.Goroutines) == 0 {
		return 1
	}
	return s.Goroutines[0]
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

// leastRounds are enough for each of many pairs to be at work at once.
const leastRounds = 20

// Threads measures half round trips of pairs of goroutines at once, each with tags of its own, and
// the messages a second of all together. The pairs share iters; the percentiles are of the first.
func Threads(s *Session, size, iters int) (Result, error) {
	loops, each := make([]*Loop, s.pairs()), max(iters/s.pairs(), leastRounds)
	var ready sync.WaitGroup
	ready.Add(len(loops))
	err := inParallel(len(loops), func(i int) error {
		here := sync.OnceFunc(ready.Done)
		defer here() // with an error before the others' clocks have started
		l := &Loop{Out: make([]byte, size), In: make([]byte, size), check: s.Check, first: s.First && i == 0, pair: i, iters: each}
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
	r.Goroutines, r.Iters = len(loops), each*len(loops)
	r.MsgS *= float64(len(loops))
	r.MBs *= float64(len(loops))
	return r, nil
}

// span is the time from the start of the first clock until all rounds under the clock were done.
func span(loops []*Loop) time.Duration {
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

var goroutinesColumn = whole("goroutines", 10, func(r *Result) int { return r.Goroutines })

var threadsTable = layout{
	of: func(r *Result) bool { return r.Goroutines > 0 },
	note: func(r *Result) string {
		return wires(r) + "; half round trip in us of goroutines in pairs at once; messages of all, and that over the first number of goroutines"
	},
	columns: []column{sizeColumn, goroutinesColumn, roundsColumn("round trips", 11), avgColumn, p50Column, p99Column,
		rateColumn, overColumn},
	over: rateOver,
}

// manyStreamsTable is streamTable for several goroutines.
var manyStreamsTable = layout{
	of: func(r *Result) bool { return r.Goroutines > 0 && r.Window > 0 },
	note: func(r *Result) string {
		return fmt.Sprintf("%s, %d messages under way of each goroutine; messages of all, and that over the first number of goroutines", wires(r), r.Window)
	},
	columns: []column{sizeColumn, goroutinesColumn, roundsColumn("messages", 10), megabytesColumn, rateColumn, overColumn},
	over:    rateOver,
}

func rateOver(r *Result) (string, float64) { return fmt.Sprint(r.Size), r.MsgS }
