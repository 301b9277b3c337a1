package soft

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// bind has the calling thread run on these processors only.
func bind(cpus []int) error {
	var set unix.CPUSet
	for _, cpu := range cpus {
		if set.Set(cpu); !set.IsSet(cpu) {
			return fmt.Errorf("there is no processor %d", cpu)
		}
	}
	return os.NewSyscallError("sched_setaffinity", unix.SchedSetaffinity(0, &set))
}
