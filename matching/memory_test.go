package matching

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

const wild = exact &^ 0xff

// A queue that has reached its largest depth allocates nothing more.
func TestSteadyStateDoesNotAllocate(t *testing.T) {
	const depth = 1000 // below keepEmpty*chunkSize
	v := new(int)
	for name, cycle := range map[string]func(){
		"posted": func() func() {
			q := NewPosted[*int](1)
			hs := make([]Handle, 0, 3*depth)
			return func() {
				hs = hs[:0]
				for i := range uint64(depth) {
					hs = append(hs, q.Post(i, exact, v), q.Post(i<<8, wild, v), q.Post(0, i%8, v))
				}
				for i := range uint64(depth) {
					q.Match(i)
					q.MatchBefore(i<<8, q.NextSeq())
				}
				for _, h := range hs {
					q.Remove(h)
				}
			}
		}(),
		"unexpected": func() func() {
			q := NewUnexpected[*int](1)
			return func() {
				for i := range uint64(depth) {
					q.Add(i, v)
				}
				for i := range uint64(depth) {
					if _, ok := q.Match(i, wild); !ok {
						q.Match(i, exact)
					}
					q.Match(0, 0)
				}
				for i := range uint64(depth) {
					q.Match(i, exact)
				}
			}
		}(),
	} {
		t.Run(name, func(t *testing.T) {
			for range 20 { // until the ring has been as long as it gets, and has used what it uses of reserved entries
				cycle()
			}
			require.Zero(t, testing.AllocsPerRun(20, cycle))
		})
	}
}

func heapBytes() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// After a spike a queue keeps what keepEmpty allows and the array of buckets; after some further
// traffic not even that array.
func TestMemoryAfterSpike(t *testing.T) {
	const spike = 300_000
	const small = 2 << 20
	v := new(int)

	t.Run("posted", func(t *testing.T) {
		base := heapBytes()
		q := NewPosted[*int](1)
		first := q.Post(exact, exact, v)
		for i := range uint64(spike) {
			q.Post(i, exact, v)
		}
		full := heapBytes() - base
		for i := range uint64(spike) {
			_, ok := q.Match(i)
			require.True(t, ok)
		}
		drained := heapBytes() - base
		for i := range uint64(40 * spike) {
			q.Post(i, exact, v)
			q.Match(i)
		}
		later := heapBytes() - base
		t.Logf("full %d, drained %d, later %d bytes", full, drained, later)
		require.Less(t, full, int64(spike*100))
		require.Less(t, drained, int64(3*small))
		require.Less(t, later, int64(small))
		checkSlab(t, &q.slab)
		_, ok := q.Remove(first)
		require.True(t, ok, "an entry that stays keeps its handle")
	})

	t.Run("unexpected", func(t *testing.T) {
		base := heapBytes()
		q := NewUnexpected[*int](1)
		for i := range uint64(spike) {
			q.Add(i, v)
		}
		q.build(wild)
		full := heapBytes() - base
		for i := range uint64(spike) {
			_, ok := q.Match(i, exact)
			require.True(t, ok)
		}
		for i := range uint64(20 * spike) {
			q.Add(i, v)
			q.Add(i, v)
			q.Match(i, exact)
			q.Match(i, exact)
		}
		later := heapBytes() - base
		t.Logf("full %d, later %d bytes", full, later)
		require.Less(t, later, int64(small))
		require.Empty(t, q.built, "an index out of use is dropped")
		checkSlab(t, &q.slab)
	})
}

// A chunk that was freed and allocated again must not revive old handles.
func TestHandlesSurviveRelease(t *testing.T) {
	const n = longRing + 2*keepEmpty*chunkSize
	q := NewPosted[int](1)
	var old []Handle
	for range 3 {
		hs := postNumbers(q, n)
		for _, h := range old {
			_, ok := q.Remove(h)
			require.False(t, ok)
		}
		requireRemoves(t, q, hs)
		require.NotEmpty(t, q.vacant)
		old = append(old, hs...)
	}
}

// Values that have left a queue must be collectable: those that were in the ring, those that have
// moved to the tables, and those that came there.
func TestRemovedValuesAreForgotten(t *testing.T) {
	const n, ways = 10, 4
	p, u := NewPosted[*[64]byte](1), NewUnexpected[*[64]byte](1)
	made := 0
	freed := make(chan int, 100*n)
	value := func() *[64]byte {
		v := new([64]byte)
		made++
		runtime.AddCleanup(v, func(int) { freed <- 1 }, 0)
		return v
	}
	p.Post(exact, exact, nil) // never empty
	u.Add(exact, nil)
	for way := range ways {
		var hp, hu []Handle
		for i := range uint64(n) {
			p.Post(i, exact, value())
			hp = append(hp, p.Post(i, 0xff, value()))
			u.Add(i, value())
			hu = append(hu, u.Add(i, value()))
			if way == 1 && i == n/2 { // the others come to the tables
				p.ring.settle()
				u.ring.settle()
			}
		}
		if way == 2 {
			p.ring.settle()
			u.ring.settle()
		}
		require.Equal(t, way == 1 || way == 2, p.ring.bypassed)
		for i := range uint64(n) {
			p.Match(i)
			u.Match(i, 0xff)
			p.Remove(hp[n-1-i])
			u.Remove(hu[n-1-i])
		}
		require.Equal(t, 1, p.Len())
		for range stayOut { // the ring is used again
			p.Match(p.exact.mask - 1)
			p.Remove(p.Post(1, exact, nil))
			u.Remove(u.Add(1, nil))
		}
	}
	require.Eventually(t, func() bool { runtime.GC(); return len(freed) == made }, 5e9, 1e6)
	runtime.KeepAlive(p)
	runtime.KeepAlive(u)
}

// A receive with a mask is answered from an index once it has scanned enough,
// and the answers are the same before, after, and with more masks than indexes.
func TestIndexLifecycle(t *testing.T) {
	const n = 2000
	q := NewUnexpected[int](1)
	for i := range n {
		q.Add(uint64(i), i)
	}
	q.ring.settle()
	q.Find(exact, wild)
	require.Empty(t, q.built, "one receive must not build an index")
	for range buildCost {
		q.Find(exact, wild)
	}
	require.Len(t, q.built, 1)
	require.Equal(t, wild, q.built[0].mask)

	for round := range 2 * buildCost {
		for m := range uint64(2*maxIndexes + 4) {
			mask := exact &^ (1 << m)
			want := -1
			if tag := uint64(n-1) & mask; tag < n {
				want = int(tag)
			}
			v, _, ok := q.Find(n-1, mask)
			require.True(t, ok)
			require.Contains(t, []int{want, n - 1}, v, "round %d mask %x", round, mask)
			_, _, ok = q.Find(exact, mask)
			require.False(t, ok)
		}
	}
	require.Len(t, q.built, maxIndexes)
	for q.Len() > 0 {
		_, ok := q.Match(uint64(n-q.Len())|0xff<<32, exact&^(0xff<<32))
		require.True(t, ok)
	}
	for i := range 2*idleFloor + 4*n {
		q.Add(uint64(i), i)
		q.Match(uint64(i), exact)
		q.Add(uint64(i), i) // never alone, so that the indexes see it
		q.Add(uint64(i), i)
		q.Match(uint64(i), exact)
		q.Match(uint64(i), exact)
	}
	require.Empty(t, q.built)
}

// A resize is spread over calls: none may move more than a few buckets, and it must end before the
// next is due.
func TestResizeIsIncremental(t *testing.T) {
	q := NewPosted[int](1)
	size := len(q.exact.cur)
	for i := range 100_000 {
		moving := q.exact.old != nil
		moved := q.exact.moved
		q.Post(uint64(i), exact, i)
		if moving && q.exact.old != nil {
			require.LessOrEqual(t, q.exact.moved-moved, uint64(moveStep))
		}
		if len(q.exact.cur) != size {
			require.False(t, moving, "a resize was still going on")
			size = len(q.exact.cur)
		}
	}
}
