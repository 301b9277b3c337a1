package launch

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// allowedCPUs lists the CPUs that this process may use.
func allowedCPUs() ([]int, error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return nil, os.NewSyscallError("sched_getaffinity", err)
	}
	var cpus []int
	for i := range 8 * len(set) * 8 {
		if set.IsSet(i) {
			cpus = append(cpus, i)
		}
	}
	return cpus, nil
}

// bindThread binds the calling thread, which must be locked to its goroutine, and so the processes
// that it starts, until unbind is called.
func bindThread(cpu int) (unbind func(), err error) {
	var before, set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		return nil, os.NewSyscallError("sched_getaffinity", err)
	}
	set.Set(cpu)
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return nil, os.NewSyscallError("sched_setaffinity", err)
	}
	return func() { _ = unix.SchedSetaffinity(0, &before) }, nil
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
	var set unix.CPUSet
	set.Set(cpu)
	if !set.IsSet(cpu) {
		return nil, fmt.Errorf("launch: %s is %d, which is beyond the CPUs that can be named", EnvPin, cpu)
	}
	if others, err = allowedCPUs(); err != nil {
		return nil, fmt.Errorf("launch: pinning: %w", err)
	}
	others = slices.DeleteFunc(others, func(n int) bool { return n == cpu })
	runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	return others, pinThreads(&set, 0)
}

// PinOthers binds all threads but the calling one to the given CPUs, and locks that to its
// goroutine for good: what the others do does not take its CPU.
func PinOthers(cpus []int) error {
	runtime.LockOSThread() // before: it may start a thread
	var set unix.CPUSet
	for _, cpu := range cpus {
		set.Set(cpu)
	}
	return pinThreads(&set, unix.Gettid())
}

// pinThreads pins threads, except one, until it finds no new one: a thread started by one that was
// not pinned yet has the old affinity.
func pinThreads(set *unix.CPUSet, except int) error {
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
			if err := unix.SchedSetaffinity(tid, set); err != nil && !errors.Is(err, unix.ESRCH) {
				return fmt.Errorf("launch: pinning thread %d: %w", tid, os.NewSyscallError("sched_setaffinity", err))
			}
		}
	}
	return nil
}
