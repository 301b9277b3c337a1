package soft

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTurns: first halves of messages are copied by one end and second ones by the other, whatever
// came before; other READs by turns, and what is alone by the reader.
func TestTurns(t *testing.T) {
	var q turns
	read := func(addr, n uint64, idle bool) bool {
		push := q.next(addr, idle)
		q.took(addr, n, idle, push)
		return push
	}
	halves := func(idle, first bool) {
		t.Helper()
		require.Equal(t, first, read(1<<20, 1<<10, idle))
		require.Equal(t, !first, read(1<<20+1<<10, 1<<10, false))
	}
	for range 3 {
		halves(true, false)
		halves(false, false)
		require.False(t, read(5<<20, 100, true), "alone")
		require.True(t, read(6<<20, 100, false))
		require.False(t, read(5<<20, 100, false))
		halves(false, true) // its turn, and that of those behind it
		halves(false, true)
	}
}
