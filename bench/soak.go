package main

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/tagmatch/tagmatch/bench/internal/benchkit"
	"github.com/tagmatch/tagmatch/bench/internal/faults"
	"github.com/tagmatch/tagmatch/bench/internal/soak"
	"github.com/tagmatch/tagmatch/p2p"
)

// soakFor is how long messages are exchanged by default.
const soakFor = time.Minute

// soakMessages is the default of how many messages each rank sends to each other in each exchange
// of a round, at most.
func soakMessages(int) int { return soakCount }

const soakCount = 50

// soakRank is one rank's side.
func soakRank(s *benchkit.Session, size, count int) (benchkit.Result, error) {
	start := time.Now()
	t, err := soak.Run(s.World, soak.Options{Size: size, Count: count, For: s.For})
	if err != nil {
		return benchkit.Result{}, err
	}
	return s.Soak(size, count, time.Since(start), benchkit.Soak(t)), nil
}

// soakFaults starts the jobs of which a rank dies.
func soakFaults(f benchkit.Flags, out io.Writer) (int, error) {
	opt, err := f.Driven()
	if err != nil {
		return 1, err
	}
	return faults.Drive(faults.Options{Job: opt, Every: f.Fault, For: f.For, Seed: f.Seed, JSON: f.JSON}, out)
}

// soakEndure is the side of a rank of such a job.
func soakEndure(s *benchkit.Session) error {
	r, err := faults.Join(s.World.Rank())
	if err != nil {
		return err
	}
	count := s.Iters
	if count == 0 {
		count = soakCount
	}
	t, loss, err := soak.Endure(s.World, soak.Options{Size: s.Sizes[0], Count: count}, r.Ready)
	if err != nil {
		return err
	}
	err = r.Over(faults.Survivor{Lost: loss.Rank, At: loss.At, Over: loss.Over, Soak: benchkit.Soak(t)})
	if err != nil {
		return err
	}
	if err := s.World.Shutdown(context.Background()); !errors.Is(err, p2p.ErrPeerLost) {
		return errors.Join(errors.New("the end of a job that has lost a rank does not tell of the loss"), err)
	}
	return nil
}
