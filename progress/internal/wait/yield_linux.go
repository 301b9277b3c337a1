package wait

import "syscall"

// yieldProcessor yields the processor to other processes: two ranks may share one. The Go scheduler
// is not told: with GOMAXPROCS 1 it would start another thread whenever the yield takes
// more than 20 us.
func yieldProcessor() {
	_, _, _ = syscall.RawSyscall(syscall.SYS_SCHED_YIELD, 0, 0, 0)
}
