package matching

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

const stayOut = longRing / 2 // elements go to the tables before a ring is tried again

func (q *Posted[T]) requireMatch(t *testing.T, tag uint64, want T) {
	t.Helper()
	v, ok := q.Match(tag)
	require.True(t, ok)
	require.Equal(t, want, v)
}

// Receives that are taken in the order in which they were posted are never in the tables, however
// many there are.
func TestRingInOrder(t *testing.T) {
	q := NewPosted[int](1)
	for range 5 {
		for i := range longRing {
			q.Post(uint64(i), exact, i)
		}
		for i := range longRing {
			q.requireMatch(t, uint64(i), i)
		}
		require.Zero(t, q.reservedInUse)
	}
	require.Len(t, q.ring.slots, longRing)
	require.Zero(t, q.ring.debt, "nothing was searched for")
}

// Windows of receives of one tag each are found without a search from their second receive on,
// whichever window comes first.
func TestRingRuns(t *testing.T) {
	const tags, window = 8, 64
	q := NewPosted[int](1)
	for range 20 {
		for i := range tags * window {
			q.Post(uint64(i/window), exact, i)
		}
		q.ring.debt = 0
		for tag := tags - 1; tag >= 0; tag-- {
			for i := range window {
				q.requireMatch(t, uint64(tag), tag*window+i)
			}
		}
		require.Less(t, q.ring.debt, tags*tags*window)
		require.Zero(t, q.reservedInUse)
	}
}

// A receive that stays goes to the tables alone, and costs the others neither the ring nor, as it
// gets no longer, memory.
func TestRingOldest(t *testing.T) {
	q := NewPosted[int](1)
	old := q.Post(exact, exact, -1)
	for i := range 3 * longRing {
		q.Post(uint64(i), exact, i)
		q.requireMatch(t, uint64(i), i)
		require.LessOrEqual(t, q.n, 1)
	}
	require.Equal(t, 1, q.reservedInUse)
	require.Len(t, q.ring.slots, shortRing)
	seq, ok := q.Seq(old)
	require.True(t, ok)
	require.EqualValues(t, 1, seq)
	q.requireMatch(t, exact, -1)
}

// A queue whose elements are not taken in order goes to its tables, with the handles that it had,
// and is in the ring again once it is empty, or after some time.
func TestRingSearched(t *testing.T) {
	const n = shortRing - 1
	q := NewPosted[int](1)
	hs := make([]Handle, n)
	mixed := func(until func() bool) {
		for i := range n {
			hs[i] = q.Post(uint64(i), exact, i)
		}
		for r := rand.New(rand.NewPCG(1, 1)); !until(); {
			i := r.IntN(n)
			q.requireMatch(t, uint64(i), i)
			hs[i] = q.Post(uint64(i), exact, i)
		}
		for i := range n {
			v, ok := q.Remove(hs[i])
			require.True(t, ok, "receive %d has lost its handle", i)
			require.Equal(t, i, v)
			_, ok = q.Remove(hs[i])
			require.False(t, ok)
		}
		require.Zero(t, q.Len())
	}
	mixed(func() bool { return q.ring.bypassed })
	q.Post(1, exact, 1)
	require.False(t, q.ring.bypassed, "the queue was empty")
	q.requireMatch(t, 1, 1)

	left := 0
	mixed(func() bool {
		if q.ring.bypassed {
			left++
		}
		return left >= stayOut && !q.ring.bypassed
	})
	require.Less(t, left, 2*stayOut)
}

// Searches that find nothing send messages to the tables, too; they are still the oldest.
func TestRingMisses(t *testing.T) {
	const n = 4 * shortRing
	q := NewUnexpected[int](1)
	for i := range n {
		q.Add(uint64(i), i)
	}
	for i := range 1 + (n+mostDebt+ringCredit*n)/(n-scanFree) {
		require.False(t, q.ring.bypassed)
		for range 2 { // the second search has a hint
			_, ok := q.Match(uint64(n+i)<<8, wild)
			require.False(t, ok)
		}
	}
	require.True(t, q.ring.bypassed)
	for i := range stayOut {
		q.Add(uint64(n+i), n+i)
	}
	require.False(t, q.ring.empty())
	for i := range n + stayOut {
		v, ok := q.Match(0, 0)
		require.True(t, ok)
		require.Equal(t, i, v, "the oldest is next")
	}
}

// A queue that is longer than the ring can be is in the tables, and in the ring again later, with
// what is still in the tables, and with an index that counts it.
func TestRingFull(t *testing.T) {
	q := NewUnexpected[int](1)
	for i := range 2 * longRing {
		q.Add(uint64(i), i)
	}
	require.True(t, q.ring.bypassed)
	require.Equal(t, 2*longRing, q.n)
	q.build(wild)
	for i := range 2*longRing - longRing/32 {
		_, ok := q.Match(uint64(i), exact)
		require.True(t, ok)
	}
	for i := range stayOut + 8*longRing {
		q.Add(1<<40, i)
		v, ok := q.Match(1<<40, exact)
		require.True(t, ok)
		require.Equal(t, i, v)
	}
	require.False(t, q.ring.bypassed)
	require.Equal(t, longRing/32, q.n)
	require.Empty(t, q.built, "an index out of use is dropped")
	checkRing(t, &q.ring, &q.slab)
}

// Elements that outstay the others move to the tables one by one; where they are many the ring is
// left, and none is put beside an entry that is in use.
func TestRingLent(t *testing.T) {
	for _, span := range []uint64{shortRing - 1, longRing - 1} {
		q := NewPosted[int](1)
		q.ring.span = span
		var stay []Handle
		for i := range 3 * longRing {
			stay = append(stay, q.Post(uint64(i), exact, i))
			_, ok := q.Remove(q.Post(uint64(i), exact, -1))
			require.True(t, ok)
			require.True(t, q.ring.bypassed || q.reservedInUse <= q.ring.mostReserved()+len(q.ring.slots)/4)
		}
		require.True(t, q.ring.bypassed)
		checkRing(t, &q.ring, &q.slab)
		for i, h := range stay {
			v, ok := q.Remove(h)
			require.True(t, ok)
			require.Equal(t, i, v)
		}
		q.Post(1, exact, 1)
		require.False(t, q.ring.bypassed)
	}
}

// The position behind a full ring has the entry of the oldest, which may have moved just now.
func TestRingMovesItsNext(t *testing.T) {
	q := NewPosted[int](1)
	q.ring.span = shortRing - 1
	busy := func(n int) {
		for range n {
			q.Post(1, exact, 1)
			q.requireMatch(t, 1, 1)
		}
	}
	busy(10) // so that the lap does not end there
	old := q.Post(2, exact, 2)
	busy(shortRing - 1)
	q.Post(3, exact, 3)
	require.Equal(t, 1, q.reservedInUse)
	checkRing(t, &q.ring, &q.slab)
	v, ok := q.Remove(old)
	require.True(t, ok)
	require.Equal(t, 2, v)
}

// postNumbers posts receives 0 to n-1, whose tags and values are their numbers.
func postNumbers(q *Posted[int], n int) (hs []Handle) {
	for i := range n {
		hs = append(hs, q.Post(uint64(i), exact, i))
	}
	return hs
}

// requireRemoves removes what postNumbers has posted: each handle is good for that once.
func requireRemoves(t *testing.T, q *Posted[int], hs []Handle) {
	t.Helper()
	for i, h := range hs {
		v, ok := q.Remove(h)
		require.True(t, ok)
		require.Equal(t, i, v)
		_, ok = q.Remove(h)
		require.False(t, ok)
	}
}

// All handles of a full ring are good for one removal.
func TestRingHandles(t *testing.T) {
	q := NewPosted[int](1)
	requireRemoves(t, q, postNumbers(q, longRing))
	require.Zero(t, q.Len())
}

// An index that is used is kept while the ring takes what comes.
func TestRingKeepsIndexInUse(t *testing.T) {
	const old = 400
	q := NewUnexpected[int](1)
	for i := range longRing {
		q.Add(0, i)
	}
	for range longRing {
		q.Match(0, exact)
	}
	for i := range old {
		q.Add(uint64(i), i)
	}
	q.ring.settle()
	q.build(wild)
	x := q.built[0]
	for i := range stayOut + 10*longRing {
		q.Add(uint64(i)<<8|1<<62, i)
		q.Find(1<<63, wild)
		v, ok := q.Match(uint64(i)<<8|1<<62, wild)
		require.True(t, ok)
		require.Equal(t, i, v)
	}
	require.False(t, q.ring.bypassed)
	require.Equal(t, []*index{x}, q.built)
}

// More positions in a row may have entries in use than the ring has places.
func TestRingPassesRun(t *testing.T) {
	const some = shortRing - 4
	q := NewPosted[int](1)
	busy := func() {
		q.Post(exact, exact, -1)
		q.requireMatch(t, exact, -1)
	}
	for range 8 {
		for q.ring.bypassed { // until positions begin anew
			busy()
		}
		for i := range some {
			q.Post(uint64(i), exact, i)
		}
		q.ring.settle()
	}
	for q.ring.bypassed {
		busy()
	}
	for range 3 * shortRing {
		busy()
		checkRing(t, &q.ring, &q.slab)
	}
	require.Equal(t, 8*some, q.reservedInUse)
	require.Len(t, q.ring.slots, shortRing)
}

// A receive that is back has a new handle each time: one that was kept of an earlier time is stale.
func TestReturnedHandles(t *testing.T) {
	q := NewPosted[int](1)
	last := q.Post(1, exact, 7)
	for range 3 {
		_, ok := q.Match(1)
		require.True(t, ok)
		h := q.Return(q.Place(last), 1, exact, 7)
		_, ok = q.Seq(last)
		require.False(t, ok)
		seq, ok := q.Seq(h)
		require.True(t, ok)
		require.EqualValues(t, 1, seq)
		last = h
	}
}
