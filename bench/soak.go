package main

import (
	"time"

	"github.com/tagmatch/tagmatch/bench/internal/benchkit"
	"github.com/tagmatch/tagmatch/bench/internal/soak"
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
