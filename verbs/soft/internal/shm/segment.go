//go:build linux

package shm

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

const wantedSeals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL

// segment is a sealed memfd, mapped. Only segments of ours keep their descriptor, for sending it.
type segment struct {
	fd  int
	mem []byte
}

// pageRound rounds up to whole pages.
func pageRound(n int) int {
	page := os.Getpagesize()
	return (n + page - 1) / page * page
}

// newSegment makes a segment of at least n zero bytes. Its pages are allocated here if it is whole,
// else by allocate: a fault that finds no memory would be a SIGBUS, in whichever process touches
// the page. One that is not whole is for us alone to write, where the kernel can see to that (Linux
// 5.1), which also keeps its pages from being taken away again.
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
		_ = s.seal(unix.F_SEAL_FUTURE_WRITE) // a second line only: peers map it read-only
	}
	return s.seal(wantedSeals)
}

// allocate makes the pages of n bytes from off on. Seals do not hinder it.
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

// adoptSegment maps a descriptor that came from a peer, after it was seen to be what we need: a
// memfd of which nobody can take pages away, of exactly the size that is expected. The pages of one
// that is not whole have to be tried before use (readable). The descriptor stays the caller's.
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

// close unmaps. nil is fine.
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
