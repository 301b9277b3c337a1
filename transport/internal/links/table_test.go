package links

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTable(t *testing.T) {
	for _, n := range []int{1, 2, 3, 100, 1000} {
		tab := newTable(n)
		for i := range n { // they may be dense, or equal in their low bits
			tab.add(uint32(i)<<10, i)
		}
		for i := range n {
			require.Equal(t, i, tab.find(uint32(i)<<10))
		}
		for i := range uint32(100) {
			require.Equal(t, -1, tab.find(i<<10|1))
		}
	}
}
