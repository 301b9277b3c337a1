package seal

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/tagmatch/tagmatch/internal/fault"
)

// TestFaults: memory that is gone in the middle of sealing or opening costs no record, also the
// first of a generation: the next call does what that one was to do.
func TestFaults(t *testing.T) {
	const size = 2 << 10
	b, err := unix.Mmap(-1, 0, 8192, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	require.NoError(t, err)
	defer func() { require.NoError(t, unix.Munmap(b)) }()
	require.NoError(t, unix.Mprotect(b[4096:], unix.PROT_NONE))
	gone := b[4096-size/2:][:size]
	for _, every := range []int64{1, 3 * size, RekeyAfter} {
		s, o := pair(t, every)
		for i := range byte(10) {
			var record []byte
			require.False(t, fault.Guard(func() { record, _ = s.Append(nil, gone) }))
			require.Nil(t, record)
			contents := bytes.Repeat([]byte{i}, size)
			record, err := s.Append(nil, contents)
			require.NoError(t, err)
			n, err := o.Size(record)
			require.NoError(t, err)
			require.Len(t, record, n)
			require.False(t, fault.Guard(func() { _, _ = o.Open(gone[:0], record) }))
			got, err := o.Open(nil, record)
			require.NoError(t, err)
			require.Equal(t, contents, got)
		}
	}
}
