package wait

import "syscall"

// yieldProcessor offers the processor to other processes: two ranks may share one. The Go scheduler
// is not told: with GOMAXPROCS 1 it would start another thread whenever the offer is taken for more
// than 20 us.
func yieldProcessor() {
	_, _, _ = syscall.RawSyscall(syscall.SYS_SCHED_YIELD, 0, 0, 0)
}
