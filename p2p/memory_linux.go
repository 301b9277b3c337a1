package p2p

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/tagmatch/tagmatch/internal/cgroup"
	"github.com/tagmatch/tagmatch/internal/memfd"
)

// memory is what Alloc returns: whole pages outside of the Go heap.
type memory struct {
	bytes []byte
	seg   *memfd.Segment // nil: anonymous memory
}

func newMemory(size int) (*memory, error) {
	if err := enough(uint64(size), "/"); err != nil {
		return nil, err
	}
	seg, err := memfd.New("tagmatch-memory", size, memfd.Allocated|memfd.Populated)
	if err == nil {
		return &memory{seg.Mem, seg}, nil
	}
	if !errors.Is(err, unix.ENOSYS) && !errors.Is(err, unix.EPERM) {
		return nil, err
	}
	// Where the kernel refuses memfds no wire shares memory.
	b, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_POPULATE)
	return &memory{bytes: b}, err
}

// enough refuses what the kernel would not refuse: it would kill a process. root is that of the
// file system.
func enough(size uint64, root string) error {
	if free, ok := available(root); ok && size > free {
		return fmt.Errorf("%w: the host has %d bytes", unix.ENOMEM, free)
	}
	if l, ok := cgroup.Memory(root); ok && size > l.Free {
		return fmt.Errorf("%w: a container or control group limits this process to %d bytes (%s), of which %d are free",
			unix.ENOMEM, l.Bytes, l.File, l.Free)
	}
	return nil
}

// available is the memory in bytes that the kernel estimates to be free for use.
func available(root string) (n uint64, ok bool) {
	text, err := os.ReadFile(filepath.Join(root, "proc/meminfo"))
	if err != nil {
		return 0, false
	}
	_, line, ok := strings.Cut(string(text), "MemAvailable:")
	if _, err := fmt.Sscan(line, &n); !ok || err != nil {
		return 0, false
	}
	return n << 10, true
}

// fd is a descriptor by which other processes can map the memory, or -1.
func (m *memory) fd() int {
	if m.seg == nil {
		return -1
	}
	return m.seg.FD
}

func (m *memory) free() {
	if m.seg == nil {
		_ = unix.Munmap(m.bytes)
		return
	}
	m.seg.Discard() // peers may have mapped it
	m.seg.Close()
}
