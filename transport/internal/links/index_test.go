package links

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestIndex(t *testing.T) {
	for _, n := range []int{1, 2, 3, 100, 1000} {
		tab := NewIndex(n)
		room := len(tab.slots)
		for i := range n { // they may be dense, or equal in their low bits
			tab.Add(uint64(i)<<10, uint32(i))
		}
		require.Len(t, tab.slots, room, "nothing was allocated")
		for i := n; i < 3*room; i++ {
			tab.Add(uint64(i)<<10, uint32(i))
		}
		for i := range 3 * room {
			require.Equal(t, i, tab.Find(uint64(i)<<10))
		}
		for i := range uint64(100) {
			require.Equal(t, -1, tab.Find(i<<10|1))
		}
	}
}
