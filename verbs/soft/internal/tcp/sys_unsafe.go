//go:build linux

package tcp

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// System calls on sockets that must not block. Those for small amounts are raw: the scheduler is
// not told, which saves some 50 ns each, and none of them can sleep.

// rawRecv reads what is there into b, which is not empty.
func rawRecv(fd int, b []byte) (int, syscall.Errno) {
	n, _, e := unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)),
		unix.MSG_DONTWAIT, 0, 0)
	return int(n), e
}

// rawSend writes what fits of b, which is not empty.
func rawSend(fd int, b []byte) (int, syscall.Errno) {
	n, _, e := unix.RawSyscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)),
		unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, 0, 0)
	return int(n), e
}

// rawEpoll looks what is ready.
func rawEpoll(ep int, events []unix.EpollEvent) (int, syscall.Errno) {
	n, _, e := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(ep), uintptr(unsafe.Pointer(unsafe.SliceData(events))),
		uintptr(len(events)), 0, 0, 0)
	return int(n), e
}

// vector is what two buffers are sent from or read into. It is kept, as it must not be on a stack
// that grows.
type vector struct {
	msg unix.Msghdr
	iov [2]unix.Iovec
}

func (v *vector) set(a, b []byte) {
	v.iov[0].Base, v.iov[1].Base = unsafe.SliceData(a), unsafe.SliceData(b)
	v.iov[0].SetLen(len(a))
	v.iov[1].SetLen(len(b))
	v.msg.Iov = &v.iov[0]
	v.msg.SetIovlen(2)
}

// send writes what fits of a followed by b. They are large: the scheduler is told.
func (v *vector) send(fd int, a, b []byte) (int, syscall.Errno) {
	v.set(a, b)
	n, _, e := unix.Syscall(unix.SYS_SENDMSG, uintptr(fd), uintptr(unsafe.Pointer(&v.msg)), unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
	v.set(nil, nil)
	return int(n), e
}

// recv reads what is there into a and then b.
func (v *vector) recv(fd int, a, b []byte) (int, syscall.Errno) {
	v.set(a, b)
	n, _, e := unix.Syscall(unix.SYS_RECVMSG, uintptr(fd), uintptr(unsafe.Pointer(&v.msg)), unix.MSG_DONTWAIT)
	v.set(nil, nil)
	return int(n), e
}
