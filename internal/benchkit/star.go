package benchkit

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/tagmatch/tagmatch/p2p"
)

// Star measures loops in which every rank sends to rank 0, and rank 0 answers each once it has
// heard all: what a barrier or a reduction of small values comes to. It is for any number of ranks,
// in particular more than there are processors.
func Star(s *Session, size, iters int) (Result, error) {
	st := star{w: s.World, out: make([]byte, size), in: make([]byte, size), from: make([]bool, s.World.Size())}
	if err := st.checked(); err != nil { // payloads are verified before timing
		return Result{}, err
	}
	step := st.step
	if s.Check {
		step = st.checked
	}
	if err := s.repeat(warmUp(iters), step); err != nil {
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
	r := s.result("star", size, iters, elapsed)
	r.Ranks = s.World.Size()
	r.P50Us = float64(h.ValueAtQuantile(50)) / 1e3
	r.P99Us = float64(h.ValueAtQuantile(99)) / 1e3
	return r, nil
}

// star is one rank's side.
type star struct {
	w       *p2p.World
	out, in []byte
	from    []bool
	round   int
}

// step is one loop.
func (s *star) step() error {
	ctx := context.Background()
	if s.w.Rank() != 0 {
		if err := s.w.Send(ctx, 0, ping, s.out); err != nil {
			return err
		}
		_, err := s.w.Recv(ctx, pong, p2p.Exact, s.in)
		return err
	}
	for range s.w.Size() - 1 {
		if _, err := s.w.Recv(ctx, ping, p2p.Exact, s.in); err != nil {
			return err
		}
	}
	return s.answer(ctx)
}

func (s *star) answer(ctx context.Context) error {
	for peer := 1; peer < s.w.Size(); peer++ {
		if err := s.w.Send(ctx, peer, pong, s.out); err != nil {
			return err
		}
	}
	return nil
}

// checked is a loop with payloads that are new each time: rank 0 compares what it gets from each
// rank, and its answer is the same to all.
func (s *star) checked() error {
	ctx := context.Background()
	s.round++
	fill(s.out, s.round)
	if s.w.Rank() != 0 {
		clear(s.in)
		if err := s.w.Send(ctx, 0, ping, s.out); err != nil {
			return err
		}
		st, err := s.w.Recv(ctx, pong, p2p.Exact, s.in)
		if err == nil && (int(st.Len) != len(s.out) || !bytes.Equal(s.in, s.out)) {
			err = fmt.Errorf("round %d: rank 0's answer is not what was sent", s.round)
		}
		return err
	}
	clear(s.from)
	for range s.w.Size() - 1 {
		st, err := s.w.Recv(ctx, ping, p2p.Exact, s.in)
		if err != nil {
			return err
		}
		if s.from[st.Source] {
			return fmt.Errorf("round %d: rank %d was heard twice", s.round, st.Source)
		}
		s.from[st.Source] = true
		if err := verify(s.in, st, s.round); err != nil {
			return err
		}
	}
	return s.answer(ctx)
}
