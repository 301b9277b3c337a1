//go:build linux

// Package userfault is for tests of what becomes of memory whose pages never come.
package userfault

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Requests of ioctl_userfaultfd(2), whose arguments have 24 and 32 bytes.
const (
	uffdAPI      = 0xc018aa3f
	uffdRegister = 0xc020aa00

	version = 0xaa // of the API
	missing = 1    // the mode: pages that are not there are asked for
)

type (
	apiArg      struct{ version, features, ioctls uint64 }
	registerArg struct{ start, size, mode, ioctls uint64 }
)

// Forget has the kernel ask for the pages of mem, whole ones that were not touched, by a descriptor
// that nobody reads: who touches them waits until the caller closes it. The error is that of a
// kernel without userfaultfd(2), or one that refuses it to this process.
func Forget(mem []byte) (fd int, err error) {
	r, _, errno := unix.Syscall(unix.SYS_USERFAULTFD, unix.O_CLOEXEC|unix.O_NONBLOCK, 0, 0)
	if errno != 0 {
		return -1, os.NewSyscallError("userfaultfd", errno)
	}
	api := apiArg{version: version}
	reg := registerArg{start: uint64(uintptr(unsafe.Pointer(unsafe.SliceData(mem)))), size: uint64(len(mem)), mode: missing}
	if _, _, errno = unix.Syscall(unix.SYS_IOCTL, r, uffdAPI, uintptr(unsafe.Pointer(&api))); errno == 0 {
		_, _, errno = unix.Syscall(unix.SYS_IOCTL, r, uffdRegister, uintptr(unsafe.Pointer(&reg)))
	}
	if errno != 0 {
		_ = unix.Close(int(r))
		return -1, os.NewSyscallError("ioctl", errno)
	}
	return int(r), nil
}
