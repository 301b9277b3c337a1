package ranks

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestList(t *testing.T) {
	require.Equal(t, "rank 3", List([]int{3}))
	require.Equal(t, "ranks 1, 4, 7", List([]int{4, 7, 1}))
	require.Equal(t, "ranks 0, 1", List([]int{1, 0, 1}))
	require.Equal(t, "ranks 0-2, 4, 5, 7-999", List(append(from(7, 999), 5, 4, 0, 1, 2)))
	var odd []int
	for i := range 20 {
		odd = append(odd, 2*i+1)
	}
	require.Equal(t, "ranks 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31 and 4 more", List(odd))
	require.Equal(t, "ranks 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31-33 and 103 more",
		List(append(odd[:15], append(from(31, 33), from(100, 202)...)...)))
}

func from(first, last int) []int {
	var list []int
	for r := first; r <= last; r++ {
		list = append(list, r)
	}
	return list
}
