package benchkit

import (
	"fmt"
	"slices"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/tagmatch/tagmatch/p2p"
)

// RoundTrips is a test of half round trips with the loop body: it runs on both ranks and ranges
// over l.Rounds. A round sends l.Out and receives the other rank's message into l.In.
func RoundTrips(body func(w *p2p.World, l *Loop) error) Test {
	return func(s *Session, size, iters int) (Result, error) {
		return s.rounds("lat", size, iters, 2, body)
	}
}

// Loop verifies and times the rounds of one size on one rank.
type Loop struct {
	Out, In []byte // the payloads of a round

	pair      int  // of goroutines
	check     bool // verify every round, not the first one only
	first     bool // this rank reads the clock
	iters     int
	verified  int    // rounds that were verified
	verifying bool   // this round is
	start     func() // returns when the clock may start; nil: at once
	began     time.Time
	elapsed   time.Duration // of iters rounds
	parts     []float64     // microseconds a round in each part of them
	hist      *hdrhistogram.Histogram
	err       error // why the rounds ended early
}

// rounds runs body on this rank and reports latencies of 1/parts of a round.
func (s *Session) rounds(test string, size, iters int, parts float64,
	body func(w *p2p.World, l *Loop) error) (Result, error) {
	l := &Loop{Out: make([]byte, size), In: make([]byte, size), check: s.Check, first: s.First,
		iters: iters}
	if err := body(s.World, l); err != nil {
		return Result{}, err
	}
	if l.err != nil {
		return Result{}, l.err
	}
	r := s.Result(test, size, iters, time.Duration(float64(l.elapsed)/parts))
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

// Rounds is an iterator over the rounds, each of which moves Out and In. In the first one payloads
// are verified, others warm up. The first half of the timed ones gives the averages, of all and of
// parts, without reading the clock in between; in the second half every round is timed for the
// percentiles, the reading of the clock included.
func (l *Loop) Rounds(yield func() bool) {
	step := func() bool { return l.begin() && yield() && l.verify() }
	l.verifying = true
	if !step() {
		return
	}
	if !l.check {
		l.verifying, step = false, yield
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
func (l *Loop) unclocked(step func() bool) bool {
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

func repeat(n int, step func() bool) bool {
	for range n {
		if !step() {
			return false
		}
	}
	return true
}

// begin gives the round its own payloads.
func (l *Loop) begin() bool {
	l.verified++
	Fill(l.Out, payload(l.pair, l.verified))
	clear(l.In)
	return true
}

// verify compares the received message with what every rank sends in this round.
func (l *Loop) verify() bool {
	if err := Damage(l.In, l.Out); err != nil {
		l.err = fmt.Errorf("round %d: a message of %d bytes %w", l.verified, len(l.In), err)
	}
	return l.err == nil
}
