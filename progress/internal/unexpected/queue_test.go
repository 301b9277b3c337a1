package unexpected

import (
	"bytes"
	"runtime"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/tagmatch/tagmatch/internal/invariant"
)

const exact = ^uint64(0)

// space parts the tags of these tests.
func space(tag uint64) uint64 { return tag & 4 }

// naive is a Queue as a list by order of arrival that is searched from the front.
type naive struct {
	list  []Message
	costs map[uint64]uint64 // by Seq, of those in list
	peak  int64
}

func (n *naive) add(m Message, cost uint64) {
	i := 0
	for i < len(n.list) && n.list[i].Seq < m.Seq {
		i++
	}
	n.list = slices.Insert(n.list, i, m)
	n.costs[m.Seq] = cost
	n.peak = max(n.peak, int64(n.sum()))
}

func (n *naive) sum() (bytes uint64) {
	for _, cost := range n.costs {
		bytes += cost
	}
	return bytes
}

// remove takes all out for which which holds, and returns their cost.
func (n *naive) remove(which func(m *Message) bool) (cost uint64) {
	n.list = slices.DeleteFunc(n.list, func(m Message) bool {
		gone := which(&m)
		if gone {
			cost += n.costs[m.Seq]
			delete(n.costs, m.Seq)
		}
		return gone
	})
	return cost
}

// same compares what callers may see of a message.
func same(t require.TestingT, want, got *Message) {
	a, b := *want, *got
	for _, m := range []*Message{&a, &b} {
		m.handle, m.next, m.prev = 0, nil, nil
		if !m.Rndv {
			m.Request = Request{} // not an eager message's
		}
	}
	require.Equal(t, string(a.Data), string(b.Data))
	a.Data, b.Data = nil, nil
	require.Equal(t, a, b)
}

func (n *naive) check(t require.TestingT, q *Queue) {
	q.Check()
	require.Equal(t, len(n.list), q.Len())
	now, peak := q.Memory()
	require.Equal(t, []int64{int64(n.sum()), n.peak}, []int64{now, peak})
	n.checkWalk(t, q)
	i := 0
	for m := range q.All() {
		same(t, &n.list[i], m)
		i++
	}
	require.Equal(t, len(n.list), i)
}

// Whatever arrives, is matched, requeued, taken back or lost, the queue has what a plain list has.
func TestQueueAgainstModel(t *testing.T) {
	const sources = 3
	rapid.Check(t, func(t *rapid.T) {
		q, n := New(sources, 0, 1), &naive{costs: map[uint64]uint64{}}
		var reading []Message // requests that receives are reading
		var held []*Message   // eager ones that were taken out and stay where they lie
		name := uint32(0)
		source := rapid.IntRange(0, sources-1)
		tags := rapid.Uint64Range(0, 7)
		unread := func(which func(m *Message) bool) {
			reading = slices.DeleteFunc(reading, func(m Message) bool { return which(&m) })
		}
		t.Repeat(map[string]func(*rapid.T){
			"": func(t *rapid.T) { n.check(t, q) },
			"eager": func(t *rapid.T) {
				src, tag := source.Draw(t, "source"), tags.Draw(t, "tag")
				size := rapid.SampledFrom([]int{0, 1, 64, 65, 1000, 3500}).Draw(t, "size")
				data := bytes.Repeat([]byte{byte(len(n.list) + 1)}, size)
				q.KeepEager(src, tag, data)
				n.add(Message{Src: int32(src), Tag: tag, Seq: q.seq, Data: data}, EagerCost(size))
			},
			"request": func(t *rapid.T) {
				name++
				r := Request{Name: name, RKey: name + 1, Addr: uint64(name) << 32, Len: uint64(name)}
				m := Message{Src: int32(source.Draw(t, "source")), Tag: tags.Draw(t, "tag"), Seq: q.NextSeq(), Rndv: true, Request: r}
				if rapid.IntRange(0, 3).Draw(t, "matched at once") == 0 {
					reading = append(reading, m)
					return
				}
				q.KeepRequest(int(m.Src), m.Tag, m.Seq, r)
				n.add(m, RecordCost)
			},
			"match": func(t *rapid.T) {
				tag, mask := tags.Draw(t, "tag"), rapid.SampledFrom([]uint64{exact, exact, 3, 1, 0}).Draw(t, "mask")
				m, ok := q.Match(tag, mask)
				i := slices.IndexFunc(n.list, func(u Message) bool { return (u.Tag^tag)&mask == 0 })
				require.Equal(t, i >= 0, ok)
				if !ok {
					return
				}
				want := n.list[i]
				same(t, &want, m)
				n.list = slices.Delete(n.list, i, i+1) // its cost stays
				if !want.Rndv && rapid.Bool().Draw(t, "held") {
					held = append(held, m)
					return
				}
				require.Equal(t, n.costs[want.Seq], q.Drop(m))
				delete(n.costs, want.Seq)
				if want.Rndv {
					reading = append(reading, want)
				}
			},
			"find": func(t *rapid.T) {
				tag, mask := tags.Draw(t, "tag"), rapid.SampledFrom([]uint64{exact, 3, 1, 0}).Draw(t, "mask")
				m, ok := q.Find(tag, mask)
				i := slices.IndexFunc(n.list, func(u Message) bool { return (u.Tag^tag)&mask == 0 })
				require.Equal(t, i >= 0, ok)
				if ok {
					same(t, &n.list[i], m)
				}
			},
			"drop": func(t *rapid.T) {
				if len(held) == 0 {
					t.Skip("none")
				}
				i := rapid.IntRange(0, len(held)-1).Draw(t, "message")
				m := held[i]
				held = slices.Delete(held, i, i+1)
				seq := m.Seq
				require.Equal(t, n.costs[seq], q.Drop(m))
				delete(n.costs, seq)
			},
			"requeue": func(t *rapid.T) {
				if len(reading) == 0 {
					t.Skip("none")
				}
				m := rapid.SampledFrom(reading).Draw(t, "request")
				unread(func(u *Message) bool { return u.Seq == m.Seq })
				q.Requeue(int(m.Src), m.Tag, m.Seq, m.Request)
				n.add(m, 0)
			},
			"withdraw": func(t *rapid.T) {
				src, name := source.Draw(t, "source"), rapid.Uint32Range(1, name+1).Draw(t, "name")
				is := func(m *Message) bool { return m.Rndv && m.Name == name && int(m.Src) == src }
				there := slices.ContainsFunc(n.list, func(m Message) bool { return is(&m) })
				cost, ok := q.Withdraw(src, name)
				require.Equal(t, there, ok)
				require.Equal(t, n.remove(is), cost)
			},
			"lost": func(t *rapid.T) {
				if rapid.IntRange(0, 9).Draw(t, "really") != 0 {
					t.Skip("not now")
				}
				src := source.Draw(t, "source")
				request := func(m *Message) bool { return m.Rndv && int(m.Src) == src }
				var cut []Message // requests so far
				behind := func(m *Message) bool {
					if request(m) {
						cut = append(cut, *m)
						return true
					}
					return int(m.Src) == src && slices.ContainsFunc(cut, func(c Message) bool { return space(c.Tag) == space(m.Tag) })
				}
				require.Equal(t, n.remove(behind), q.DropLost(src, space))
				unread(request)
			},
		})
	})
}

// The index by name is made for a source that withdraws, and goes with its last request.
func TestNamesAreLazy(t *testing.T) {
	q := New(2, 0, 1)
	keep := func(src int, name uint32) { q.KeepRequest(src, 0, q.NextSeq(), Request{Name: name}) }
	keep(0, 1)
	keep(0, 2)
	keep(1, 1)
	require.Nil(t, q.sources[0].named)
	_, ok := q.Withdraw(0, 1)
	require.True(t, ok)
	require.Len(t, q.sources[0].named, 1)
	require.Nil(t, q.sources[1].named)
	keep(0, 3)
	require.Len(t, q.sources[0].named, 2)
	q.DropLost(0, space)
	require.Nil(t, q.sources[0].named)
	require.Equal(t, 1, q.Len())
}

// A small message, and a request, use memory of earlier ones.
func TestNoAllocation(t *testing.T) {
	q := New(1, 0, 1)
	payload := make([]byte, 8)
	round := func() {
		q.KeepEager(0, 1, payload)
		q.KeepRequest(0, 2, q.NextSeq(), Request{})
		for tag := range uint64(2) {
			m, _ := q.Match(1+tag, exact)
			q.Drop(m)
		}
	}
	round()
	if invariant.Enabled {
		return // checks allocate
	}
	require.Zero(t, testing.AllocsPerRun(1000, round))
}

// A request, which has no bytes here, takes no more than what it is charged with, found by tag,
// mask and name; the ring of matching.Unexpected comes on top.
func TestRecordCost(t *testing.T) {
	for _, n := range []int{1<<14 + 1, 59000, 1<<16 + 1, 100000} { // what doubles has just grown, or not
		const ring = 1 << 19
		before := heapInUse() + ring
		q := New(1, 64<<20, 1)
		for i := range n {
			q.KeepRequest(0, uint64(i), q.NextSeq(), Request{Name: uint32(i), Len: 1000})
		}
		for i := range 1000 {
			_, ok := q.Match(uint64(n+i), exact>>1) // until it makes an index for this mask
			require.False(t, ok)
		}
		_, ok := q.Withdraw(0, 0)
		require.True(t, ok)
		require.Len(t, q.sources[0].named, n-1)
		require.LessOrEqual(t, float64(heapInUse()-before)/float64(n), float64(RecordCost+checkCost), "%d requests", n)
		runtime.KeepAlive(q)
	}
}

func heapInUse() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// Records of dropped messages are kept up to the limit.
func TestRecordsAreBounded(t *testing.T) {
	q := New(1, 0, 1)
	for range 2 * q.records.most {
		q.KeepRequest(0, 1, q.NextSeq(), Request{})
	}
	q.DropLost(0, space)
	require.Equal(t, q.records.most, q.records.n)
}

func BenchmarkEager(b *testing.B) {
	q := New(1, 64<<20, 1)
	payload := make([]byte, 8)
	for b.Loop() {
		q.KeepEager(0, 1, payload)
		m, _ := q.Match(1, exact)
		q.Drop(m)
	}
}

// checkWalk checks a walk in parts, between which nothing changes.
func (n *naive) checkWalk(t require.TestingT, q *Queue) {
	w, got := q.Walk(), map[uint64]*Message{}
	for more := true; more; {
		seen := len(got)
		more = w.Part(3, func(m *Message) { got[m.Seq] = m })
		require.LessOrEqual(t, len(got), seen+3)
	}
	require.Len(t, got, q.Len())
	for m := range q.All() {
		require.Same(t, m, got[m.Seq])
	}
}

// TestWalkOfOthers: a walk does not find what comes after its beginning, nor miss a requeued
// request where one before it has gone.
func TestWalkOfOthers(t *testing.T) {
	q := New(1, 0, 1)
	for name := range uint32(3) {
		q.Requeue(0, 1, q.NextSeq(), Request{Name: name})
	}
	q.KeepEager(0, 1, nil)
	w, got := q.Walk(), []uint64{}
	visit := func(m *Message) { got = append(got, m.Seq) }
	q.KeepEager(0, 1, nil)
	require.True(t, w.Part(1, visit))
	for w.Part(1, visit) {
		if len(got) == 2 {
			_, ok := q.Withdraw(0, 0)
			require.True(t, ok)
		}
	}
	require.Equal(t, []uint64{4, 1, 2, 3}, got)
}
