package benchkit

import (
	"fmt"
	"slices"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/tagmatch/tagmatch/p2p"
)

// loop verifies and times the rounds of one size on one rank. A body runs on all ranks and ranges
// over rounds. A round sends out and receives another rank's message into in.
type loop struct {
	out, in []byte // the payloads of a round

	pair     int  // of goroutines
	check    bool // verify every round, not the first one only
	first    bool // this rank reads the clock
	iters    int
	verified int    // rounds that were verified
	start    func() // returns when the clock may start; nil: at once
	began    time.Time
	elapsed  time.Duration // of iters rounds
	parts    []float64     // microseconds a round in each part of them
	hist     *hdrhistogram.Histogram
	err      error // why the rounds ended early
}

func newLoop(s *Session, size, iters int, check bool) *loop {
	return &loop{out: make([]byte, size), in: make([]byte, size), check: check, first: s.First, iters: iters}
}

// rounds runs body on this rank and reports latencies of 1/parts of a round.
func (s *Session) rounds(test string, l *loop, parts float64, body func(w *p2p.World, l *loop) error) (Result, error) {
	if err := body(s.World, l); err != nil {
		return Result{}, err
	}
	if l.err != nil {
		return Result{}, l.err
	}
	r := s.Result(test, len(l.in), l.iters, time.Duration(float64(l.elapsed)/parts))
	slices.Sort(l.parts)
	r.MidUs = l.parts[len(l.parts)/2] / parts
	r.Percentiles(l.hist, parts)
	return r, nil
}

// Percentiles sets those of 1/parts of what was recorded; nil: nothing was.
func (r *Result) Percentiles(hist *hdrhistogram.Histogram, parts float64) {
	if hist != nil {
		r.P50Us = float64(hist.ValueAtQuantile(50)) / 1e3 / parts
		r.P99Us = float64(hist.ValueAtQuantile(99)) / 1e3 / parts
	}
}

// rounds is an iterator over the rounds, each of which moves out and in. In the first one payloads
// are verified, others warm up. The first half of the timed ones gives the averages, of all and of
// parts, without reading the clock in between; in the second half every round is timed for the
// percentiles, the reading of the clock included.
func (l *loop) rounds(yield func() bool) {
	step := func() bool { return l.begin() && yield() && l.verify() }
	if !step() {
		return
	}
	if !l.check {
		step = yield
	}
	if !repeat(warmUp(l.iters), step) {
		return
	}
	if l.start != nil {
		l.start()
	}
	l.began = time.Now()
	if !l.unclocked(step) {
		return
	}
	if !l.first {
		repeat(l.iters, step)
		return
	}
	l.hist = NewHistogram()
	start := time.Now()
	last := time.Duration(0)
	for range l.iters {
		if !step() {
			return
		}
		now := time.Since(start)
		// A round longer than the histogram's range is a stall that the average shows.
		_ = l.hist.RecordValue(int64(now - last))
		last = now
	}
}

// NewHistogram is one of times up to a minute, in nanoseconds.
func NewHistogram() *hdrhistogram.Histogram { return hdrhistogram.New(1, int64(time.Minute), 3) }

// clockParts are the parts of the rounds whose averages are kept.
const clockParts = 100

// unclocked makes iters rounds and reads the clock a few times.
func (l *loop) unclocked(step func() bool) bool {
	for i := range clockParts {
		n := l.iters*(i+1)/clockParts - l.iters*i/clockParts
		start := time.Now()
		if !repeat(n, step) {
			return false
		}
		took := time.Since(start)
		l.elapsed += took
		if n > 0 {
			l.parts = append(l.parts, us(took)/float64(n))
		}
	}
	return true
}

// warmUp is how many of iters precede the timing.
func warmUp(iters int) int { return min(iters/10+1, 1000) }

func repeat(n int, step func() bool) bool {
	for range n {
		if !step() {
			return false
		}
	}
	return true
}

// begin gives the round its own payloads.
func (l *loop) begin() bool {
	l.verified++
	Fill(l.out, payload(l.pair, l.verified))
	clear(l.in)
	return true
}

// verify compares the received message with what every rank sends in this round.
func (l *loop) verify() bool {
	if err := Damage(l.in, l.out); err != nil {
		l.err = fmt.Errorf("round %d: a message of %d bytes %w", l.verified, len(l.in), err)
	}
	return l.err == nil
}
