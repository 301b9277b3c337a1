//go:build linux

package limits

import (
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// shared is what both processes have at the beginning of their memory, a pair of lines for each.
type shared struct {
	first  atomic.Uint32
	_      [124]byte
	second atomic.Uint32
	_      [124]byte
	turn   atomic.Uint32
	_      [124]byte
	done   atomic.Uint32
	_      [124]byte
	// What one side tells the other.
	value atomic.Uint64
}

func sharedIn(mem []byte) *shared { return (*shared)(unsafe.Pointer(&mem[0])) }

// address of a buffer that does not move: of mapped memory.
func address(buf []byte) uintptr { return uintptr(unsafe.Pointer(&buf[0])) }

// transfer is a non-blocking recvfrom or sendto, without telling the scheduler of Go.
func transfer(call uintptr, fd int, buf []byte) (int, unix.Errno) {
	n, _, e := unix.RawSyscall6(call, uintptr(fd), uintptr(unsafe.Pointer(&buf[0])), uintptr(len(buf)), unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, 0, 0)
	return int(n), e
}
