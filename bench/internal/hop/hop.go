package hop

import (
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tagmatch/tagmatch/internal/cpus"
)

// probeSlices of probeRounds are one probe: the median of the slices leaves out what interrupted a
// few of them. On processors that others use too a probe takes as many slices as fit into
// probeTime.
const (
	probeSlices = 21
	probeRounds = 1000
	probeTime   = 200 * time.Millisecond
)

// Probe measures what limits every message, whoever sends it: a cache line's way from one
// processor to the other. It changes for seconds at a time on shared machines.
func Probe(pair [2]int) (time.Duration, error) {
	if runtime.GOMAXPROCS(0) < 2 {
		// Both sides must run at once; this process measures nothing else.
		runtime.GOMAXPROCS(2)
	}
	var line struct {
		_    [64]byte
		turn atomic.Uint32
		_    [64]byte
	}
	var took []time.Duration
	var errs [2]error
	var sides sync.WaitGroup
	for side := range 2 {
		sides.Go(func() {
			// The thread ends with its goroutine, so nobody inherits its affinity.
			runtime.LockOSThread()
			errs[side] = cpus.Bind(0, pair[side])
			if side == 1 {
				for bounce(&line.turn, 1) {
				}
				return
			}
			begin := time.Now()
			for len(took) < probeSlices && time.Since(begin) < probeTime {
				start := time.Now()
				bounce(&line.turn, 0)
				took = append(took, time.Since(start))
			}
			for line.turn.Load() != 0 {
			}
			line.turn.Store(turnOver)
		})
	}
	sides.Wait()
	for _, err := range errs {
		if err != nil {
			return 0, err
		}
	}
	slices.Sort(took)
	return took[len(took)/2] / (2 * probeRounds), nil
}

// turnOver is the turn of nobody.
const turnOver = 2

// bounce waits for its turn and passes it on, probeRounds times; false when there are no more
// turns.
func bounce(turn *atomic.Uint32, side uint32) bool {
	for range probeRounds {
		for t := turn.Load(); t != side; t = turn.Load() {
			if t == turnOver {
				return false
			}
		}
		turn.Store(1 - side)
	}
	return true
}
