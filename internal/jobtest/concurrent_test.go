package jobtest

import (
	"testing"
	"time"

	"github.com/tagmatch/tagmatch/p2p"
	"github.com/tagmatch/tagmatch/p2p/p2ptest"
)

// TestConcurrentSchedule plays the schedules of TestSchedule among goroutines of this process, for
// the race detector.
func TestConcurrentSchedule(t *testing.T) {
	for _, n := range []int{2, 4} {
		seed := uint64(time.Now().UnixNano())
		p2ptest.Run(t, n, func(w *p2p.World) {
			for i, raw := range []bool{true, false} {
				s := &schedule{w: w, seed: seed + uint64(i), useRaw: raw, big: raw}
				if err := s.run(t.Context(), 24/effort); err != nil {
					t.Errorf("seed %d: %v", seed, err)
				}
			}
		})
	}
}
