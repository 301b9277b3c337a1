package matching

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A short queue whose elements are not taken in order goes to its tables, with the handles and
// order that it had, and comes back when it is empty; one that is taken in order stays.
func TestFront(t *testing.T) {
	const n = frontLen - 1
	post := func(q *Posted[int]) (hs []Handle) {
		for i := range n {
			hs = append(hs, q.Post(uint64(i), exact, i))
		}
		return hs
	}
	q := NewPosted[int](1)
	for range 3 * frontDebt / n {
		post(q)
		for i := range n {
			v, ok := q.Match(uint64(i))
			require.True(t, ok)
			require.Equal(t, i, v)
		}
	}
	require.False(t, q.front.left, "nothing was searched for")

	hs := post(q)
	for i := n - 1; !q.front.left; i = (i + n - 1) % n {
		v, ok := q.Match(uint64(i))
		require.True(t, ok)
		hs[i] = q.Post(uint64(i), exact, v)
		require.LessOrEqual(t, q.front.debt, frontDebt)
	}
	for i := range n {
		v, ok := q.Remove(hs[i])
		require.True(t, ok, "receive %d has lost its handle", i)
		require.Equal(t, i, v)
		_, ok = q.Remove(hs[i])
		require.False(t, ok)
	}
	require.False(t, q.front.left, "the queue is empty")

	u := NewUnexpected[int](1)
	for i := range n {
		u.Add(uint64(i), i)
	}
	for i := range 2 * frontDebt / (n - scanFree) {
		_, ok := u.Match(exact, wild)
		require.False(t, ok)
		require.Equal(t, u.front.left, i+1 > frontDebt/(n-scanFree))
	}
	for i := range n {
		v, ok := u.Match(0, 0)
		require.True(t, ok)
		require.Equal(t, i, v, "the oldest is next")
	}
}
