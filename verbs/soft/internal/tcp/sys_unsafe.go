//go:build linux

package tcp

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// System calls on sockets, none of which blocks. Those that move little data do not notify the Go
// scheduler (RawSyscall), which saves some 50 ns each.

// rawRecv reads into b, which is not empty.
func rawRecv(fd int, b []byte) (int, syscall.Errno) {
	n, _, e := unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)),
		unix.MSG_DONTWAIT, 0, 0)
	return int(n), e
}

// rawSend writes as much of b, which is not empty, as the socket takes.
func rawSend(fd int, b []byte) (int, syscall.Errno) {
	n, _, e := unix.RawSyscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)),
		unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, 0, 0)
	return int(n), e
}

// rawEpoll returns the events of an epoll without waiting.
func rawEpoll(ep int, events []unix.EpollEvent) (int, syscall.Errno) {
	n, _, e := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(ep), uintptr(unsafe.Pointer(unsafe.SliceData(events))),
		uintptr(len(events)), 0, 0, 0)
	return int(n), e
}

// vector has the arguments of a system call on two buffers. It is part of a link, since it must not
// be on a stack, which may move.
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

// send writes as much of a followed by b as the socket takes.
func (v *vector) send(fd int, a, b []byte) (int, syscall.Errno) {
	v.set(a, b)
	n, _, e := unix.Syscall(unix.SYS_SENDMSG, uintptr(fd), uintptr(unsafe.Pointer(&v.msg)), unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
	v.set(nil, nil)
	return int(n), e
}

// recv reads into a and then b.
func (v *vector) recv(fd int, a, b []byte) (int, syscall.Errno) {
	v.set(a, b)
	n, _, e := unix.Syscall(unix.SYS_RECVMSG, uintptr(fd), uintptr(unsafe.Pointer(&v.msg)), unix.MSG_DONTWAIT)
	v.set(nil, nil)
	return int(n), e
}
