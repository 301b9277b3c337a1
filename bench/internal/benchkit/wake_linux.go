package benchkit

import (
	"fmt"
	"math"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// now is the time since some moment that all processes of this host agree on.
func now() (time.Duration, error) {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		return 0, os.NewSyscallError("clock_gettime", err)
	}
	return time.Duration(t.Nano()), nil
}

// newPage makes memory that other processes can open by its name, which has gone when this one has.
func newPage() (*page, string, error) {
	fd, err := unix.MemfdCreate("tagmatch-bench", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, "", os.NewSyscallError("memfd_create", err)
	}
	if err = unix.Ftruncate(fd, int64(os.Getpagesize())); err != nil {
		unix.Close(fd)
		return nil, "", os.NewSyscallError("ftruncate", err)
	}
	p, err := mapPage(fd)
	return p, "/proc/" + strconv.Itoa(os.Getpid()) + "/fd/" + strconv.Itoa(fd), err
}

// openPage opens what newPage has made.
func openPage(name string) (*page, error) {
	fd, err := unix.Open(name, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", name, err)
	}
	return mapPage(fd)
}

// mapPage takes fd over.
func mapPage(fd int) (*page, error) {
	mem, err := unix.Mmap(fd, 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		unix.Close(fd)
		return nil, os.NewSyscallError("mmap", err)
	}
	return pageIn(mem, func() error {
		unix.Close(fd)
		return os.NewSyscallError("munmap", unix.Munmap(mem))
	}), nil
}

// await returns when the word is not old any more.
func (p *page) await(old uint32) error {
	for p.word.Load() == old {
		const wait = 0 // FUTEX_WAIT
		_, _, e := unix.Syscall6(unix.SYS_FUTEX, p.address(), wait, uintptr(old), 0, 0, 0)
		if e != 0 && e != unix.EAGAIN && e != unix.EINTR {
			return os.NewSyscallError("futex", e)
		}
	}
	return nil
}

// wake gives the word its value and wakes who awaits that.
func (p *page) wake(value uint32) error {
	p.word.Store(value)
	const wake = 1 // FUTEX_WAKE
	if _, _, e := unix.Syscall6(unix.SYS_FUTEX, p.address(), wake, math.MaxInt32, 0, 0, 0); e != 0 {
		return os.NewSyscallError("futex", e)
	}
	return nil
}
