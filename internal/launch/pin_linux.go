package launch

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/tagmatch/tagmatch/internal/cpus"
)

// bindThread binds the calling thread, which must be locked to its goroutine, and so the processes
// that it starts, until unbind is called.
func bindThread(cpu int) (unbind func(), err error) {
	before, err := cpus.Allowed()
	if err == nil {
		err = cpus.Bind(0, cpu)
	}
	return func() { _ = cpus.Bind(0, before...) }, err
}

// PinSelf binds all threads of this process to the CPU in TAGMATCH_PIN, if that is set. It does so
// to the running threads, not before the program starts, and first fixes GOMAXPROCS at its value,
// because the runtime would derive it from the new affinity. It returns the CPUs that were allowed
// before and are not any more.
func PinSelf() (others []int, err error) {
	s := os.Getenv(EnvPin)
	if s == "" {
		return nil, nil
	}
	cpu, err := strconv.Atoi(s)
	if err != nil || cpu < 0 {
		return nil, fmt.Errorf("launch: %s is %q: give the number of a CPU", EnvPin, s)
	}
	if others, err = cpus.Allowed(); err != nil {
		return nil, fmt.Errorf("launch: pinning: %w", err)
	}
	others = slices.DeleteFunc(others, func(n int) bool { return n == cpu })
	runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	return others, pinThreads(0, cpu)
}

// PinOthers binds all threads but the calling one to the given CPUs, and locks that to its
// goroutine for good: what the others do does not take its CPU.
func PinOthers(list []int) error {
	runtime.LockOSThread() // before: it may start a thread
	return pinThreads(unix.Gettid(), list...)
}

// pinThreads pins threads, except one, until it finds no new one: a thread started by one that was
// not pinned yet has the old affinity.
func pinThreads(except int, list ...int) error {
	seen := map[int]bool{except: true}
	for again := true; again; {
		again = false
		tasks, err := os.ReadDir("/proc/self/task")
		if err != nil {
			return fmt.Errorf("launch: pinning: %w", err)
		}
		for _, task := range tasks {
			tid, err := strconv.Atoi(task.Name())
			if err != nil || seen[tid] {
				continue
			}
			seen[tid], again = true, true
			if err := cpus.Bind(tid, list...); err != nil && !errors.Is(err, unix.ESRCH) {
				return fmt.Errorf("launch: pinning thread %d: %w", tid, err)
			}
		}
	}
	return nil
}
