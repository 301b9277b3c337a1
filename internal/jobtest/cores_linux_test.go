package jobtest

import (
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// stayOn binds every thread of this process to its first n allowed processors, or to all if there
// are fewer.
func stayOn(n int) error {
	var all, some unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		return err
	}
	for cpu := 0; some.Count() < min(n, all.Count()); cpu++ {
		if all.IsSet(cpu) {
			some.Set(cpu)
		}
	}
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return err
	}
	for _, t := range threads {
		tid, err := strconv.Atoi(t.Name())
		if err != nil {
			return err
		}
		if err := unix.SchedSetaffinity(tid, &some); err != nil && err != unix.ESRCH {
			return err
		}
	}
	return nil
}
