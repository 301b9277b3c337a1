package jobtest

import (
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// stayOnOneCore binds every thread of this process to the first processor that it may use.
func stayOnOneCore() error {
	var all, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		return err
	}
	for cpu := 0; ; cpu++ {
		if all.IsSet(cpu) {
			one.Set(cpu)
			break
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
		if err := unix.SchedSetaffinity(tid, &one); err != nil && err != unix.ESRCH {
			return err
		}
	}
	return nil
}
