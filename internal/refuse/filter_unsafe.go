//go:build linux

package refuse

import (
	"errors"
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Calls makes the system calls of these numbers (unix.SYS_...) fail with errno, in all threads of
// this process and in the programs that it starts, for ever: call it in a process of its own.
// Several calls add up; of two for the same number the later one decides.
func Calls(errno unix.Errno, numbers ...uintptr) error {
	arch, ok := map[string]uint32{"amd64": unix.AUDIT_ARCH_X86_64, "arm64": unix.AUDIT_ARCH_AARCH64}[runtime.GOARCH]
	if !ok {
		return errors.New("refuse: not written for " + runtime.GOARCH)
	}
	filter := program(arch, errno, numbers)
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	// The thread that drops privileges must be the one that installs the filter.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("refuse: no_new_privs: %w", err)
	}
	thread, _, failed := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER,
		unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&prog)))
	if failed != 0 {
		return fmt.Errorf("refuse: seccomp: %w", failed)
	}
	if thread != 0 {
		return fmt.Errorf("refuse: thread %d has a filter of its own", thread)
	}
	return nil
}

// program allows everything but the numbers. The number of a system call depends on the
// architecture.
func program(arch uint32, errno unix.Errno, numbers []uintptr) []unix.SockFilter {
	const (
		offsetNumber, offsetArch = 0, 4 // struct seccomp_data

		load  = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
		equal = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
		end   = unix.BPF_RET | unix.BPF_K
	)
	allow := unix.SockFilter{Code: end, K: unix.SECCOMP_RET_ALLOW}
	list := []unix.SockFilter{
		{Code: load, K: offsetArch},
		{Code: equal, K: arch, Jt: 1},
		allow,
		{Code: load, K: offsetNumber},
	}
	for _, n := range numbers {
		list = append(list,
			unix.SockFilter{Code: equal, K: uint32(n), Jf: 1},
			unix.SockFilter{Code: end, K: unix.SECCOMP_RET_ERRNO | uint32(errno)&unix.SECCOMP_RET_DATA})
	}
	return append(list, allow)
}
