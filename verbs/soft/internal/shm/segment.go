//go:build linux

package shm

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

const wantedSeals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL

// segment is a sealed memfd that is mapped.
type segment struct {
	fd  int // to pass to peers; -1 in segments that a peer has made
	mem []byte
}

// pageRound rounds up to whole pages.
func pageRound(n int) int {
	page := os.Getpagesize()
	return (n + page - 1) / page * page
}

// newSegment makes a segment of at least n zero bytes. If it is whole, its pages are allocated
// here, else by allocate: a page fault without memory would be a SIGBUS in the process that touches
// the page. A segment that is not whole can only be written by this process, if the kernel supports
// that (F_SEAL_FUTURE_WRITE, Linux 5.1), so that peers cannot deallocate its pages either.
func newSegment(name string, n int, whole bool) (*segment, error) {
	n = pageRound(n)
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	s := &segment{fd: fd}
	if err := s.fill(n, whole); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// fill allocates, maps and seals the memfd.
func (s *segment) fill(n int, whole bool) (err error) {
	flags := unix.MAP_SHARED
	if whole {
		flags |= unix.MAP_POPULATE
		err = s.allocate(0, n)
	} else {
		err = os.NewSyscallError("ftruncate", unix.Ftruncate(s.fd, int64(n)))
	}
	if err != nil {
		return err
	}
	if s.mem, err = unix.Mmap(s.fd, 0, n, unix.PROT_READ|unix.PROT_WRITE, flags); err != nil {
		return os.NewSyscallError("mmap", err)
	}
	if !whole {
		_ = s.seal(unix.F_SEAL_FUTURE_WRITE) // may fail: peers of this program map it read-only anyway
	}
	return s.seal(wantedSeals)
}

// allocate allocates the pages of n bytes from offset off on. Seals do not forbid that.
func (s *segment) allocate(off, n int) error {
	err := error(unix.EINTR)
	for err == unix.EINTR {
		err = unix.Fallocate(s.fd, 0, int64(off), int64(n))
	}
	if err != nil {
		return fmt.Errorf("%d bytes of shared memory: %w", n, os.NewSyscallError("fallocate", err))
	}
	return nil
}

func (s *segment) seal(seals int) error {
	_, err := unix.FcntlInt(uintptr(s.fd), unix.F_ADD_SEALS, seals)
	return os.NewSyscallError("fcntl(F_ADD_SEALS)", err)
}

// adoptSegment maps a descriptor that a peer has sent, if it is a memfd of exactly the expected
// size that nobody can shrink. If it is not whole, its pages must be checked before use (readable).
// The caller still owns the descriptor.
func adoptSegment(fd, n, prot int, whole bool) (*segment, error) {
	n = pageRound(n)
	seals, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err != nil {
		return nil, fmt.Errorf("the peer's descriptor is no memfd: %w", err)
	}
	if seals&wantedSeals != wantedSeals {
		return nil, fmt.Errorf("the peer's shared memory is not sealed: seals are %#x, want %#x", seals, wantedSeals)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, os.NewSyscallError("fstat", err)
	}
	if st.Size != int64(n) {
		return nil, fmt.Errorf("the peer's shared memory has %d bytes, want %d", st.Size, n)
	}
	flags := unix.MAP_SHARED
	if whole {
		flags |= unix.MAP_POPULATE
		if st.Blocks*512 < int64(n) {
			return nil, errors.New("the pages of the peer's shared memory are not allocated")
		}
	}
	mem, err := unix.Mmap(fd, 0, n, prot, flags)
	if err != nil {
		return nil, os.NewSyscallError("mmap", err)
	}
	return &segment{fd: -1, mem: mem}, nil
}

// close unmaps a segment, or does nothing for nil.
func (s *segment) close() {
	if s == nil {
		return
	}
	closeFD(&s.fd)
	if s.mem != nil {
		_ = unix.Munmap(s.mem)
		s.mem = nil
	}
}
