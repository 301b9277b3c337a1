package soft

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// bind makes the calling thread run on these processors only. Config.fill has checked their
// numbers.
func bind(cpus []int) error {
	var set unix.CPUSet
	for _, cpu := range cpus {
		set.Set(cpu)
	}
	err := unix.SchedSetaffinity(0, &set)
	if err == unix.EINVAL {
		return errors.New("give processors that the machine has and the process may use")
	}
	return os.NewSyscallError("sched_setaffinity", err)
}
