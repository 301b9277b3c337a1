//go:build !linux

package p2p

import "golang.org/x/sys/unix"

// memory is what Alloc returns: whole pages outside of the Go heap.
type memory struct{ bytes []byte }

func newMemory(size int) (*memory, error) {
	b, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	return &memory{b}, err
}

// fd says that other processes cannot map the memory.
func (m *memory) fd() int { return -1 }

func (m *memory) free() { _ = unix.Munmap(m.bytes) }
