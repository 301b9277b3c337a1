package fault

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// pages are n pages of a file, all of them or the first one of which can be accessed as prot says.
func pages(t *testing.T, n, prot int, first bool) []byte {
	fd, err := unix.MemfdCreate("fault", unix.MFD_CLOEXEC)
	require.NoError(t, err)
	page := os.Getpagesize()
	require.NoError(t, unix.Ftruncate(fd, int64(n*page)))
	b, err := unix.Mmap(fd, 0, n*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, unix.Munmap(b))
		require.NoError(t, unix.Close(fd))
	})
	rest := b
	if first {
		rest = b[page:]
	}
	require.NoError(t, unix.Mprotect(rest, prot))
	if prot == cut {
		require.NoError(t, unix.Ftruncate(fd, int64(n*page-len(rest))))
	}
	return b
}

// cut has pages cut the file off.
const cut = unix.PROT_READ | unix.PROT_WRITE

func TestGone(t *testing.T) {
	for name, c := range map[string]struct {
		prot        int
		read, write bool
	}{
		"all":       {unix.PROT_READ | unix.PROT_WRITE | unix.PROT_EXEC, true, true},
		"read-only": {unix.PROT_READ, true, false},
		"protected": {unix.PROT_NONE, false, false},
		"cut off":   {cut, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			for _, first := range []bool{false, true} {
				b, heap := pages(t, 3, c.prot, first), make([]byte, 3*os.Getpagesize())
				require.Equal(t, c.read, Readable(b))
				require.Equal(t, c.write, Writable(b))
				require.Equal(t, c.read, Copy(heap, b))
				require.Equal(t, c.write, Copy(b, heap))
				if first { // the last byte that is there
					require.True(t, Writable(b[:os.Getpagesize()]))
					require.Equal(t, c.read, Readable(b[:os.Getpagesize()+1]))
				}
			}
		})
	}
	require.True(t, Readable(nil))
	require.True(t, Writable(nil))
	require.Zero(t, testing.AllocsPerRun(100, func() { Copy(make([]byte, 8), []byte("12345678")) }))
}

// A bug is no fault.
func TestBugsGoOn(t *testing.T) {
	var none []byte
	var nobody *int
	for _, bug := range []func(){func() { _ = none[len(t.Name())] }, func() { _ = *nobody }, func() { panic("bug") }} {
		require.Panics(t, func() { Guard(bug) })
	}
}

// What was written is what was there.
func TestWritableChangesNothing(t *testing.T) {
	b := []byte{7, 8, 9}
	require.True(t, Writable(b))
	require.Equal(t, []byte{7, 8, 9}, b)
}
