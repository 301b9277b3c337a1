package memfd

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// Seals are those of every segment: nobody can shrink it, so that no access of those who have
// mapped it can be a SIGBUS.
const Seals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL

// Segment is a sealed memfd that is mapped.
type Segment struct {
	FD  int    // to pass to peers, or for them to open; -1 in segments that a peer has made
	Mem []byte // whole pages
}

// Pages says what is known of a segment's pages.
type Pages uint8

const (
	// Allocated: all pages are. A page fault without memory would be a SIGBUS in the process that
	// touches the page.
	Allocated Pages = 1 << iota
	// Populated: they are mapped at once, too, not at the first access.
	Populated
	// Sparse: none is, and all who have mapped the segment may write. Whoever is the first to touch
	// a page calls Reserve before.
	Sparse
)

// flags are those of mmap.
func (p Pages) flags() int {
	if p&Populated != 0 {
		return unix.MAP_SHARED | unix.MAP_POPULATE
	}
	return unix.MAP_SHARED
}

// PageRound rounds up to whole pages.
func PageRound(n int) int {
	page := os.Getpagesize()
	return (n + page - 1) / page * page
}

// CanReserve reports whether the kernel allocates pages of a mapping when asked to, and tells where
// it could not, as Linux does from 5.14 on, unless a filter of system calls forbids it. Where it
// does not, sparse segments are Allocated and Populated, also those that peers have made.
var CanReserve = sync.OnceValue(func() bool {
	b, err := unix.Mmap(-1, 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return false
	}
	defer func() { _ = unix.Munmap(b) }()
	switch reserve(b) {
	case unix.EINVAL, unix.ENOSYS, unix.EPERM:
		return false
	}
	return true // or it has no memory now
})

func (p Pages) possible() Pages {
	if p&Sparse != 0 && !CanReserve() {
		return Allocated | Populated
	}
	return p
}

// Reserve allocates the pages of mem, a part of a Sparse segment that begins with a page, and maps
// them.
func Reserve(mem []byte) error {
	if !CanReserve() {
		return nil // all are
	}
	if err := reserve(mem); err != nil {
		return fmt.Errorf("%d bytes of shared memory: %w", len(mem), os.NewSyscallError("madvise", err))
	}
	return nil
}

func reserve(mem []byte) error {
	err := error(unix.EINTR)
	for err == unix.EINTR || err == unix.EAGAIN {
		err = unix.Madvise(mem, unix.MADV_POPULATE_WRITE)
	}
	return err
}

// New makes a segment of at least n zero bytes. Without flags its pages are allocated by Allocate,
// and it can only be written by this process, if the kernel supports that (F_SEAL_FUTURE_WRITE,
// Linux 5.1), so that peers cannot deallocate its pages either.
func New(name string, n int, pages Pages) (*Segment, error) {
	n, pages = PageRound(n), pages.possible()
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	s := &Segment{FD: fd}
	if err := s.fill(n, pages); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// fill allocates, maps and seals the memfd.
func (s *Segment) fill(n int, pages Pages) (err error) {
	if pages&Allocated != 0 {
		err = s.Allocate(0, n)
	} else {
		err = os.NewSyscallError("ftruncate", unix.Ftruncate(s.FD, int64(n)))
	}
	if err != nil {
		return err
	}
	if s.Mem, err = unix.Mmap(s.FD, 0, n, unix.PROT_READ|unix.PROT_WRITE, pages.flags()); err != nil {
		return os.NewSyscallError("mmap", err)
	}
	if pages == 0 {
		_ = s.seal(unix.F_SEAL_FUTURE_WRITE) // may fail: peers of this program map it read-only anyway
	}
	return s.seal(Seals)
}

// Allocate allocates the pages of n bytes from offset off on. Seals do not forbid that.
func (s *Segment) Allocate(off, n int) error {
	err := s.fallocate(0, off, n)
	if err != nil {
		return fmt.Errorf("%d bytes of shared memory: %w", n, os.NewSyscallError("fallocate", err))
	}
	return nil
}

// Discard frees all pages, also those that peers have mapped: what they read afterwards are zeros.
func (s *Segment) Discard() {
	_ = s.fallocate(unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, len(s.Mem))
}

func (s *Segment) fallocate(mode uint32, off, n int) error {
	err := error(unix.EINTR)
	for err == unix.EINTR {
		err = unix.Fallocate(s.FD, mode, int64(off), int64(n))
	}
	return err
}

func (s *Segment) seal(seals int) error {
	_, err := unix.FcntlInt(uintptr(s.FD), unix.F_ADD_SEALS, seals)
	return os.NewSyscallError("fcntl(F_ADD_SEALS)", err)
}

// Adopt maps a descriptor of a peer's, if it is a memfd of exactly n bytes, in whole pages, that
// nobody can shrink, and not of huge pages. Where the peer punches a hole this process reads zeros,
// and takes a page of its own for each that it touches: in a cgroup at its limit that is the kernel
// ending a process of it, and where the kernel commits no more memory (vm.overcommit_memory=2) a
// SIGBUS. A hole in huge pages would be a SIGBUS wherever none is free.
//
// Of a segment whose pages are not said to be Allocated the caller checks that they are before it
// touches them. A Sparse one gets its pages here if this process cannot Reserve them:
// the peer may be able to. The caller still owns the descriptor.
func Adopt(fd, n, prot int, pages Pages) (*Segment, error) {
	n = PageRound(n)
	seals, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err != nil {
		return nil, fmt.Errorf("the peer's descriptor is no memfd: %w", err)
	}
	if seals&Seals != Seals {
		return nil, fmt.Errorf("the peer's shared memory is not sealed: seals are %#x, want %#x", seals, Seals)
	}
	if err := onTmpfs(fd); err != nil {
		return nil, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, os.NewSyscallError("fstat", err)
	}
	if st.Size != int64(n) {
		return nil, fmt.Errorf("the peer's shared memory has %d bytes, want %d", st.Size, n)
	}
	if pages&Allocated != 0 && st.Blocks*512 < int64(n) {
		return nil, errors.New("the pages of the peer's shared memory are not allocated")
	}
	if pages != pages.possible() {
		pages = pages.possible()
		if err := (&Segment{FD: fd}).Allocate(0, n); err != nil {
			return nil, err
		}
	}
	mem, err := unix.Mmap(fd, 0, n, prot, pages.flags())
	if err != nil {
		return nil, os.NewSyscallError("mmap", err)
	}
	return &Segment{FD: -1, Mem: mem}, nil
}

// onTmpfs refuses sealed files whose missing pages might not be made when they are touched.
func onTmpfs(fd int) error {
	var fs unix.Statfs_t
	err := error(unix.EINTR)
	for err == unix.EINTR {
		err = unix.Fstatfs(fd, &fs)
	}
	switch {
	case err != nil:
		return os.NewSyscallError("fstatfs", err)
	case uint32(fs.Type) != unix.TMPFS_MAGIC:
		return fmt.Errorf("the peer's shared memory is of a file system of type %#x, want tmpfs: a memfd without huge pages", uint32(fs.Type))
	}
	return nil
}

// Close unmaps a segment, or does nothing for nil.
func (s *Segment) Close() {
	if s == nil {
		return
	}
	if s.FD >= 0 {
		_ = unix.Close(s.FD)
		s.FD = -1
	}
	if s.Mem != nil {
		_ = unix.Munmap(s.Mem)
		s.Mem = nil
	}
}
