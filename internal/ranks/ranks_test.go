package ranks

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestList(t *testing.T) {
	require.Equal(t, "rank 3", List([]int{3}))
	require.Equal(t, "ranks 1, 4, 7", List([]int{4, 7, 1}))
	many := make([]int, 20)
	for i := range many {
		many[i] = i
	}
	require.Equal(t, "ranks 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15 and 4 more", List(many))
}
