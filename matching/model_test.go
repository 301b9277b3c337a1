package matching

import (
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/tagmatch/tagmatch/internal/testlevel"
)

// naive is the model of both queues: a list in order, searched from the front.
type naive struct {
	list []item
	next Seq
}

type item struct {
	tag, mask uint64
	seq       Seq
	v         int
	h         Handle
	back      bool // it has been returned
}

func (m *naive) add(tag, mask uint64, v int, h Handle) {
	m.list = append(m.list, item{tag & mask, mask, m.next, v, h, false})
	m.next++
}

func (m *naive) find(tag, mask uint64, limit Seq) int {
	return slices.IndexFunc(m.list, func(e item) bool {
		return e.seq < limit && (tag^e.tag)&mask&e.mask == 0
	})
}

func (m *naive) byHandle(h Handle) int {
	return slices.IndexFunc(m.list, func(e item) bool { return e.h == h })
}

func (m *naive) take(k int) item {
	e := m.list[k]
	m.list = slices.Delete(m.list, k, k+1)
	return e
}

// Few tags and masks, so that many match; and some arbitrary ones.
var (
	someTag  = rapid.OneOf(rapid.Uint64Range(0, 7), rapid.SampledFrom([]uint64{1 << 63, 1<<63 | 1, exact}), rapid.Uint64())
	someMask = rapid.OneOf(rapid.Just(exact), rapid.Uint64Range(0, 7), rapid.SampledFrom([]uint64{exact, 0, 1 << 63, exact &^ 1, exact &^ 3}), rapid.Uint64())
)

// Rings that are often full, or whose positions soon come again.
var someSpan = rapid.SampledFrom([]uint64{shortRing - 1, 4*shortRing - 1, longRing - 1})

// handles records every handle ever returned, so that stale ones are tried.
type handles []Handle

func (hs handles) draw(t *rapid.T) Handle {
	if len(hs) == 0 || rapid.IntRange(0, 9).Draw(t, "bogus") == 0 {
		return Handle(rapid.Uint64().Draw(t, "handle"))
	}
	// Recent ones more often.
	back := rapid.OneOf(rapid.IntRange(0, 5), rapid.IntRange(0, len(hs)-1)).Draw(t, "back")
	return hs[max(0, len(hs)-1-back)]
}

type postedMachine struct {
	q     *Posted[int]
	m     naive
	seen  handles
	taken []item // that have left the queue, or were skipped
}

func (s *postedMachine) take(k int) item {
	e := s.m.take(k)
	s.taken = append(s.taken, e)
	return e
}

func (s *postedMachine) Skip(t *rapid.T) {
	tag, mask := someTag.Draw(t, "tag"), someMask.Draw(t, "mask")
	h := s.q.Skip()
	_, has := s.q.Seq(h)
	require.False(t, has)
	s.taken = append(s.taken, item{tag & mask, mask, s.m.next, int(s.m.next), h, false})
	s.m.next++
}

func (s *postedMachine) SkipTo(t *rapid.T) {
	s.m.next += rapid.Uint64Range(0, 3).Draw(t, "more")
	s.q.SkipTo(s.m.next)
}

// Return puts some back that have left, or were skipped, those that left last more often.
func (s *postedMachine) Return(t *rapid.T) {
	for range rapid.IntRange(1, 5).Draw(t, "n") {
		if len(s.taken) == 0 {
			return
		}
		back := rapid.OneOf(rapid.IntRange(0, 5), rapid.IntRange(0, len(s.taken)-1)).Draw(t, "back")
		k := max(0, len(s.taken)-1-back)
		e := s.taken[k]
		s.taken = slices.Delete(s.taken, k, k+1)
		e.back, e.h = true, s.q.Return(s.q.Place(e.h), e.tag, e.mask, e.v)
		require.Equal(t, e.seq, s.q.Place(e.h))
		s.seen = append(s.seen, e.h)
		at := slices.IndexFunc(s.m.list, func(later item) bool { return later.seq > e.seq })
		if at < 0 {
			at = len(s.m.list)
		}
		s.m.list = slices.Insert(s.m.list, at, e)
	}
}

func (s *postedMachine) Post(t *rapid.T) {
	tag, mask := someTag.Draw(t, "tag"), someMask.Draw(t, "mask")
	require.Equal(t, s.m.next, s.q.NextSeq())
	v := int(s.m.next)
	h := s.q.Post(tag, mask, v)
	require.NotZero(t, h)
	s.m.add(tag, mask, v, h)
	s.seen = append(s.seen, h)
}

// Burst deepens the queue, so that tables grow and chunks fill.
func (s *postedMachine) Burst(t *rapid.T) {
	tag, mask := someTag.Draw(t, "tag"), someMask.Draw(t, "mask")
	stride := rapid.Uint64Range(0, 3).Draw(t, "stride")
	for k := range rapid.Uint64Range(1, 200).Draw(t, "n") {
		v := int(s.m.next)
		h := s.q.Post(tag+k*stride, mask, v)
		s.m.add(tag+k*stride, mask, v, h)
		s.seen = append(s.seen, h)
	}
}

func (s *postedMachine) Drain(t *rapid.T) {
	for range rapid.IntRange(1, 300).Draw(t, "n") {
		if len(s.m.list) == 0 {
			return
		}
		s.match(t, s.m.list[len(s.m.list)/2].tag, ^Seq(0))
	}
}

func (s *postedMachine) match(t *rapid.T, tag uint64, limit Seq) {
	var v int
	var ok bool
	if limit == ^Seq(0) {
		v, ok = s.q.Match(tag)
	} else {
		v, ok = s.q.MatchBefore(tag, limit)
	}
	k := s.m.find(tag, exact, limit)
	require.Equal(t, k >= 0, ok)
	if ok {
		require.Equal(t, s.take(k).v, v)
	}
}

func (s *postedMachine) Match(t *rapid.T) { s.match(t, someTag.Draw(t, "tag"), ^Seq(0)) }

func (s *postedMachine) MatchBefore(t *rapid.T) {
	s.match(t, someTag.Draw(t, "tag"), rapid.Uint64Range(0, s.m.next).Draw(t, "limit"))
}

func (s *postedMachine) Find(t *rapid.T) {
	tag := someTag.Draw(t, "tag")
	v, h, ok := s.q.Find(tag)
	k := s.m.find(tag, exact, ^Seq(0))
	require.Equal(t, k >= 0, ok)
	if ok {
		require.Equal(t, s.m.list[k].v, v)
		require.Equal(t, s.m.list[k].h, h)
	}
}

func (s *postedMachine) Remove(t *rapid.T) {
	h := s.seen.draw(t)
	k := s.m.byHandle(h)
	seq, has := s.q.Seq(h)
	v, ok := s.q.Remove(h)
	require.Equal(t, k >= 0, ok)
	require.Equal(t, ok, has)
	if ok {
		e := s.take(k)
		require.Equal(t, e.v, v)
		require.Equal(t, e.seq, seq)
	}
}

func (s *postedMachine) Overlapping(t *rapid.T) {
	tag, mask := someTag.Draw(t, "tag"), someMask.Draw(t, "mask")
	before := rapid.Uint64Range(0, s.m.next).Draw(t, "before")
	got := s.q.Overlapping(tag, mask, before)
	want := slices.ContainsFunc(s.m.list, func(e item) bool {
		return e.seq < before && Overlap(tag, mask, e.tag, e.mask)
	})
	// A deep queue may give the safe answer.
	if want || len(s.m.list) <= overlapBudget {
		require.Equal(t, want, got)
	}
}

func (s *postedMachine) Since(t *rapid.T) {
	seq := rapid.Uint64Range(0, s.m.next+1).Draw(t, "seq")
	most := rapid.IntRange(1, 100).Draw(t, "most")
	var want []int
	for _, e := range s.m.list {
		if e.seq >= seq && len(want) < most && !e.back {
			want = append(want, e.v)
		}
	}
	var got []int
	for v := range s.q.Since(seq) {
		if got = append(got, v); len(got) == most {
			break
		}
	}
	require.Equal(t, want, got)
}

// All removes some of what it visits, and now and then something else.
func (s *postedMachine) All(t *rapid.T) {
	mode := rapid.IntRange(0, 3).Draw(t, "mode")
	want := slices.Clone(s.m.list)
	for h, v := range s.q.All() {
		require.Equal(t, want[0].h, h)
		require.Equal(t, want[0].v, v)
		want = want[1:]
		if mode >= 1 && v%2 == 0 {
			_, ok := s.q.Remove(h)
			require.True(t, ok)
			s.take(s.m.byHandle(h))
		}
		if mode >= 2 && len(want) > 0 && v%3 == 0 { // the next as well
			s.q.Remove(want[0].h)
			s.take(s.m.byHandle(want[0].h))
			want = want[1:]
		}
		if mode == 3 && v%5 == 0 {
			s.m.add(3, exact, int(s.m.next), s.q.Post(3, exact, int(s.m.next)))
		}
	}
	require.Empty(t, want)
}

func (s *postedMachine) Check(t *rapid.T) {
	require.Equal(t, len(s.m.list), s.q.Len())
	checkReturned(t, s.q.back, slices.ContainsFunc(s.m.list, func(e item) bool { return e.back }))
	checkSlab(t, &s.q.slab)
	checkRing(t, &s.q.ring, &s.q.slab)
}

// checkReturned checks that nothing is left of receives that were back.
func checkReturned[T any](t require.TestingT, r *returned[T], some bool) {
	require.Equal(t, some, r != nil)
	if !some {
		return
	}
	receives, keys := 0, 0
	for _, h := range r.byWhat {
		require.NotEmpty(t, *h)
		receives += len(*h)
	}
	for _, u := range r.masks {
		require.NotZero(t, u.n)
		keys += u.n
	}
	require.Len(t, r.byHandle, receives)
	require.Len(t, r.byWhat, keys)
}

// holds is require.True for what is checked very often: that looks at the stack each time.
func holds(t require.TestingT, ok bool, format string, args ...any) {
	if !ok {
		require.Fail(t, fmt.Sprintf(format, args...))
	}
}

// checkSlab checks what no result shows: free entries are neither lost nor used twice, and the
// lists of chunks are right.
func checkSlab(t require.TestingT, s *slab) {
	partial := map[uint32]bool{}
	for c := s.partial; c != 0; c = s.shelves[c-1].next {
		partial[c-1] = true
	}
	for c := range s.shelves {
		if c < reservedChunks { // never on a list
			holds(t, !partial[uint32(c)] && !slices.Contains(s.empty, uint32(c)) && !slices.Contains(s.vacant, uint32(c)), "chunk %d is on a list", c)
			continue
		}
		first, live := s.shelves[c].free, s.shelves[c].live
		if uint32(c) == s.cur {
			first, live = s.free, s.live
		}
		k := 0
		if s.nodes[c] != nil {
			for i := first; i != 0; i = s.node(i).next {
				holds(t, i>>chunkBits == uint32(c), "entry %d is free in chunk %d", i, c)
				k++
			}
			holds(t, k+int(live) == chunkSize, "chunk %d: %d entries are free, %d are not", c, k, live)
		}
		holds(t, partial[uint32(c)] == (uint32(c) != s.cur && k > 0 && live > 0), "chunk %d: partial", c)
		holds(t, slices.Contains(s.empty, uint32(c)) == (uint32(c) != s.cur && s.nodes[c] != nil && live == 0), "chunk %d: empty", c)
		holds(t, slices.Contains(s.vacant, uint32(c)) == (s.nodes[c] == nil), "chunk %d: vacant", c)
	}
}

// checkRing checks what no result shows: removed elements are counted, those that are left come
// first and last, in order, and are younger than all in the tables, and no entry is used twice.
func checkRing[T comparable](t require.TestingT, r *ring[T], s *slab) {
	holes, last := uint64(0), s.node(s.node(0).prev).seq
	for k := r.head; k != r.tail; k++ {
		e := r.at(k)
		if e.gone() {
			var zero T
			holds(t, e.v == zero, "position %d is removed, and has %v", k, e.v)
			holds(t, last <= e.seq&^removed, "position %d: %d behind %d", k, e.seq&^removed, last)
			holes++
			continue
		}
		holds(t, last < e.seq, "position %d: %d behind %d", k, e.seq, last)
		last = e.seq
		holds(t, !s.used(r.entry(k)), "the entry of position %d is in use", k)
	}
	require.Equal(t, r.holes, holes)
	for k := r.tail; k != r.head+uint64(len(r.slots)); k++ {
		var zero T
		holds(t, r.at(k).v == zero, "position %d is free, and has %v", k, r.at(k).v)
	}
	for i := 0; i < hintCount && !r.empty(); i++ {
		h := r.hints[i]
		for k := r.head; k < min(h.pos, r.tail); k++ {
			e := r.at(k)
			holds(t, e.gone() || (e.tag^h.tag)&e.mask&h.mask != 0, "a hint is too far")
		}
	}
	require.True(t, r.empty() || !r.at(r.head).gone())
	reserved := 0
	for k := range r.span + 1 {
		if s.used(r.entry(k)) {
			reserved++
		}
	}
	require.Equal(t, s.reservedInUse, reserved)
	require.True(t, r.bypassed || r.putLimit-r.tail <= uint64(len(r.slots)), "the lap has no end")
	for k := r.tail; k != r.putLimit && k <= r.tail+r.span; k++ {
		holds(t, !s.used(r.entry(k)), "a position before putLimit is in use")
	}
}

func runPosted(t *rapid.T) {
	s := &postedMachine{q: NewPosted[int](rapid.Uint64().Draw(t, "seed")), m: naive{next: 1}}
	s.q.ring.span = someSpan.Draw(t, "span")
	t.Repeat(rapid.StateMachineActions(s))
}

func TestMain(m *testing.M) {
	testlevel.FewChecks()
	os.Exit(m.Run())
}

func TestPostedModel(t *testing.T) { rapid.Check(t, runPosted) }

type unexpectedMachine struct {
	q    *Unexpected[int]
	m    naive
	seen handles
}

func (s *unexpectedMachine) add(tag uint64) {
	v := int(s.m.next)
	h := s.q.Add(tag, v)
	s.m.add(tag, exact, v, h)
	s.seen = append(s.seen, h)
}

func (s *unexpectedMachine) Add(t *rapid.T) { s.add(someTag.Draw(t, "tag")) }

func (s *unexpectedMachine) Burst(t *rapid.T) {
	tag := someTag.Draw(t, "tag")
	stride := rapid.Uint64Range(0, 3).Draw(t, "stride")
	for k := range rapid.Uint64Range(1, 200).Draw(t, "n") {
		s.add(tag + k*stride)
	}
}

// Wild searches often enough with one mask for an index to be built.
func (s *unexpectedMachine) Wild(t *rapid.T) {
	tag, mask := someTag.Draw(t, "tag"), someMask.Draw(t, "mask")
	for k := range rapid.Uint64Range(1, 40).Draw(t, "n") {
		s.find(t, tag+k, mask)
		if k%4 == 0 {
			s.match(t, tag+k, mask)
		}
	}
}

func (s *unexpectedMachine) match(t *rapid.T, tag, mask uint64) {
	v, ok := s.q.Match(tag, mask)
	k := s.m.find(tag, mask, ^Seq(0))
	require.Equal(t, k >= 0, ok)
	if ok {
		require.Equal(t, s.m.take(k).v, v)
	}
}

func (s *unexpectedMachine) find(t *rapid.T, tag, mask uint64) {
	v, h, ok := s.q.Find(tag, mask)
	k := s.m.find(tag, mask, ^Seq(0))
	require.Equal(t, k >= 0, ok)
	if ok {
		require.Equal(t, s.m.list[k].v, v)
		require.Equal(t, s.m.list[k].h, h)
	}
}

func (s *unexpectedMachine) Match(t *rapid.T) {
	s.match(t, someTag.Draw(t, "tag"), someMask.Draw(t, "mask"))
}

func (s *unexpectedMachine) Drain(t *rapid.T) {
	for range rapid.IntRange(1, 300).Draw(t, "n") {
		if len(s.m.list) > 0 {
			s.match(t, s.m.list[len(s.m.list)/2].tag, exact)
		}
	}
}

func (s *unexpectedMachine) Remove(t *rapid.T) {
	h := s.seen.draw(t)
	k := s.m.byHandle(h)
	v, ok := s.q.Remove(h)
	require.Equal(t, k >= 0, ok)
	if ok {
		e := s.m.take(k)
		require.Equal(t, e.v, v)
	}
}

func (s *unexpectedMachine) All(t *rapid.T) {
	remove := rapid.Bool().Draw(t, "remove")
	want := slices.Clone(s.m.list)
	for h, v := range s.q.All() {
		require.Equal(t, want[0].h, h)
		require.Equal(t, want[0].v, v)
		want = want[1:]
		if remove && v%2 == 0 {
			s.q.Remove(h)
			s.m.take(s.m.byHandle(h))
		}
	}
	require.Empty(t, want)
}

func (s *unexpectedMachine) Check(t *rapid.T) {
	require.Equal(t, len(s.m.list), s.q.Len())
	checkSlab(t, &s.q.slab)
	checkRing(t, &s.q.ring, &s.q.slab)
	require.LessOrEqual(t, len(s.q.built), maxIndexes)
	require.LessOrEqual(t, len(s.q.debts), maxDebts)
}

func runUnexpected(t *rapid.T) {
	s := &unexpectedMachine{q: NewUnexpected[int](rapid.Uint64().Draw(t, "seed")), m: naive{next: 1}}
	s.q.ring.span = someSpan.Draw(t, "span")
	actions := rapid.StateMachineActions(s)
	t.Repeat(actions)
}

func TestUnexpectedModel(t *testing.T) { rapid.Check(t, runUnexpected) }

func FuzzPosted(f *testing.F)     { f.Fuzz(rapid.MakeFuzz(runPosted)) }
func FuzzUnexpected(f *testing.F) { f.Fuzz(rapid.MakeFuzz(runUnexpected)) }
