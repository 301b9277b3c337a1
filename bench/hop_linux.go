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

// hopSlices of hopRounds are one probe: the median of the slices leaves out what interrupted a few of them.
const (
	hopSlices = 21
	hopRounds = 2000
)

// probeHop measures what limits every message, whoever sends it: a cache line's way from one processor to the other. It
// changes for seconds at a time on shared machines.
func probeHop(cpus [2]int) (time.Duration, error) {
	var line struct {
		_    [64]byte
		turn atomic.Uint32
		_    [64]byte
	}
	var took [hopSlices]time.Duration
	var errs [2]error
	var sides sync.WaitGroup
	for side := range 2 {
		sides.Go(func() {
			// The thread ends with its goroutine, so nobody inherits its affinity.
			runtime.LockOSThread()
			errs[side] = pinThread(cpus[side])
			for i := range took {
				start := time.Now()
				bounce(&line.turn, uint32(side))
				if side == 0 {
					took[i] = time.Since(start)
				}
			}
		})
	}
	sides.Wait()
	for _, err := range errs {
		if err != nil {
			return 0, err
		}
	}
	slices.Sort(took[:])
	return took[hopSlices/2] / (2 * hopRounds), nil
}

// bounce waits for its turn and passes it on, hopRounds times.
func bounce(turn *atomic.Uint32, side uint32) {
	for range hopRounds {
		for turn.Load() != side {
		}
		turn.Store(1 - side)
	}
}

func pinThread(cpu int) error {
	var set unix.CPUSet
	set.Set(cpu)
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return fmt.Errorf("pinning to processor %d: %w", cpu, os.NewSyscallError("sched_setaffinity", err))
	}
	return nil
}
