package ibverbs

import "golang.org/x/sys/unix"

// mapMemory returns pages of zeros outside of the Go heap.
func mapMemory(size int) ([]byte, error) {
	return unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
}

func unmap(b []byte) error { return unix.Munmap(b) }
