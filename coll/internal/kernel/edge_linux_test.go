package kernel

import (
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// What lies behind the operands, or before them, is not read: it need not be memory.
func TestEdges(t *testing.T) {
	page := unix.Getpagesize()
	var vectors [3][]byte
	for i := range vectors {
		m, err := unix.Mmap(-1, 0, 3*page, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANON)
		require.NoError(t, err)
		defer func() { require.NoError(t, unix.Munmap(m)) }()
		vectors[i] = m[page : 2*page]
		require.NoError(t, unix.Mprotect(vectors[i], unix.PROT_READ|unix.PROT_WRITE))
	}
	each(func(op Op, k reflect.Kind, elem int) {
		for v := range variants {
			for n := range 70 {
				bytes := n * elem
				tables[v][op][k](vectors[0][:bytes], vectors[1][:bytes], vectors[2][:bytes])
				end := page - bytes
				tables[v][op][k](vectors[0][end:], vectors[1][end:], vectors[2][end:])
			}
		}
	})
}
