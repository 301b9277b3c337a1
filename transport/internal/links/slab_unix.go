//go:build unix && !race

package links

import (
	"os"

	"golang.org/x/sys/unix"
)

// newMemory returns n zero bytes. They are not of the heap, which clears what it gives again, and
// so would touch pages that no message needs.
func newMemory(n int) ([]byte, error) {
	b, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	return b, os.NewSyscallError("mmap", err)
}

// freeMemory gives it back: nobody may touch it any more.
func freeMemory(b []byte) error { return os.NewSyscallError("munmap", unix.Munmap(b)) }
