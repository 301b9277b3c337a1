// Package cpus tells which processors a thread may use, and binds threads to them.
//
// Concurrency: all functions may be called from any goroutine.
package cpus

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Allowed lists the processors that the calling thread may use, in ascending order.
func Allowed() (list []int, err error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return nil, os.NewSyscallError("sched_getaffinity", err)
	}
	for cpu, n := 0, set.Count(); len(list) < n; cpu++ {
		if set.IsSet(cpu) {
			list = append(list, cpu)
		}
	}
	return list, nil
}

// Bind lets a thread, and those that it starts later, use these processors alone; 0 is the calling
// thread, whose goroutine must be locked to it.
func Bind(tid int, list ...int) error {
	var set unix.CPUSet
	for _, cpu := range list {
		if set.Set(cpu); !set.IsSet(cpu) {
			return fmt.Errorf("processor %d is beyond those that can be named", cpu)
		}
	}
	return os.NewSyscallError("sched_setaffinity", unix.SchedSetaffinity(tid, &set))
}
