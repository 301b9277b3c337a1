package p2p

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/tagmatch/tagmatch/internal/memfd"
)

// memory is what Alloc returns: whole pages outside of the Go heap.
type memory struct {
	bytes []byte
	seg   *memfd.Segment // nil: anonymous memory
}

func newMemory(size int) (*memory, error) {
	if free, ok := available(); ok && uint64(size) > free {
		// The kernel would not refuse it: it would kill a process.
		return nil, fmt.Errorf("%w: the host has %d bytes", unix.ENOMEM, free)
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

// available is the memory in bytes that the kernel estimates to be free for use.
func available() (n uint64, ok bool) {
	text, err := os.ReadFile("/proc/meminfo")
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
