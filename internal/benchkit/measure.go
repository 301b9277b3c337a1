package benchkit

import (
	"fmt"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// warmUp is how many of iters go before the clock starts.
func warmUp(iters int) int { return min(iters/10+1, 1000) }

// latency times round trips of size bytes. Both ranks call it; step is one round trip on the first rank and its counterpart on
// the other. A first, unwatched half gives the average; in the second every round trip is timed for the percentiles, the two
// clock reads included.
func (s *Session) latency(test string, size, iters int, step func() error) (Result, error) {
	if err := s.repeat(warmUp(iters), step); err != nil {
		return Result{}, err
	}
	if err := s.sync(); err != nil {
		return Result{}, err
	}
	start := time.Now()
	if err := s.repeat(iters, step); err != nil {
		return Result{}, err
	}
	elapsed := time.Since(start)
	h := hdrhistogram.New(1, int64(time.Minute), 3)
	if err := s.timed(iters, h, step); err != nil {
		return Result{}, err
	}
	r := s.result(test, size, iters, elapsed/2)
	r.P50Us = float64(h.ValueAtQuantile(50)) / 2e3
	r.P99Us = float64(h.ValueAtQuantile(99)) / 2e3
	return r, nil
}

func (s *Session) repeat(n int, step func() error) error {
	for range n {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// timed records each round trip; only the first rank looks at the clock.
func (s *Session) timed(n int, h *hdrhistogram.Histogram, step func() error) error {
	if !s.First {
		return s.repeat(n, step)
	}
	begin := time.Now()
	last := time.Duration(0)
	for range n {
		if err := step(); err != nil {
			return err
		}
		now := time.Since(begin)
		// A round trip longer than the histogram's range is a stall that the average shows.
		_ = h.RecordValue(int64(now - last))
		last = now
	}
	return nil
}

// stream times iters messages of size bytes from the first rank to the other. Both call it; run moves n messages and returns
// on the first rank once the other has all of them.
func (s *Session) stream(test string, size, iters int, run func(n int) error) (Result, error) {
	if err := run(warmUp(iters)); err != nil {
		return Result{}, err
	}
	if err := s.sync(); err != nil {
		return Result{}, err
	}
	cpu, err := processorTime()
	if err != nil {
		return Result{}, err
	}
	start := time.Now()
	if err := run(iters); err != nil {
		return Result{}, err
	}
	elapsed := time.Since(start)
	spent, err := processorTime()
	if err != nil {
		return Result{}, err
	}
	total, err := s.total(spent - cpu)
	if err != nil {
		return Result{}, err
	}
	r := s.result(test, size, iters, elapsed)
	r.Window = s.Window
	if bytes := float64(size) * float64(iters); bytes > 0 {
		r.CPUPerGB = total.Seconds() / (bytes / 1e9)
	}
	return r, nil
}

// Messages is how many messages of a size make a measurement of some tenths of a second.
func Messages(size int, device string) int {
	n := 200_000
	switch {
	case size > 256<<10:
		n = max(2<<30/size, 20)
	case size > 8<<10:
		n = 10_000
	case size > 1<<10:
		n = 50_000
	}
	if device != "shm" {
		n = max(n/10, 20)
	}
	return n
}

func (s *Session) messages(size int) int {
	n := Messages(size, s.device())
	if s.Check {
		n = max(n/20, 10)
	}
	return n
}

// wrap says which size failed.
func wrap(size int, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("size %s: %w", sizeName(size), err)
}
