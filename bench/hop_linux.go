package main

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// processors lists those that this process may use.
func processors() ([]int, error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return nil, os.NewSyscallError("sched_getaffinity", err)
	}
	var cpus []int
	for i := range 64 * len(set) {
		if set.IsSet(i) {
			cpus = append(cpus, i)
		}
	}
	return cpus, nil
}

// hopSlices of hopRounds are one probe: the median of the slices leaves out what interrupted a few
// of them. On processors that others use too a probe takes as many slices as fit into hopTime.
const (
	hopSlices = 21
	hopRounds = 1000
	hopTime   = 200 * time.Millisecond
)

// probeHop measures what limits every message, whoever sends it: a cache line's way from one
// processor to the other. It changes for seconds at a time on shared machines.
func probeHop(cpus [2]int) (time.Duration, error) {
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
			errs[side] = pinThread(cpus[side])
			if side == 1 {
				for bounce(&line.turn, 1) {
				}
				return
			}
			begin := time.Now()
			for len(took) < hopSlices && time.Since(begin) < hopTime {
				start := time.Now()
				bounce(&line.turn, 0)
				took = append(took, time.Since(start))
			}
			for line.turn.Load() != 0 {
			}
			line.turn.Store(hopOver)
		})
	}
	sides.Wait()
	for _, err := range errs {
		if err != nil {
			return 0, err
		}
	}
	slices.Sort(took)
	return took[len(took)/2] / (2 * hopRounds), nil
}

// hopOver is the turn of nobody.
const hopOver = 2

// bounce waits for its turn and passes it on, hopRounds times; false when there are no more turns.
func bounce(turn *atomic.Uint32, side uint32) bool {
	for range hopRounds {
		for t := turn.Load(); t != side; t = turn.Load() {
			if t == hopOver {
				return false
			}
		}
		turn.Store(1 - side)
	}
	return true
}

func pinThread(cpu int) error {
	var set unix.CPUSet
	set.Set(cpu)
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return fmt.Errorf("pinning to processor %d: %w", cpu, os.NewSyscallError("sched_setaffinity", err))
	}
	return nil
}
