package matching

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// Part removes and adds entries between the parts: what is there all the time is visited once, and
// nothing twice.
func (s *postedMachine) Part(t *rapid.T) {
	drawParts(t, s.m.list, s.q.Part, func(h Handle) {
		_, ok := s.q.Remove(h)
		require.True(t, ok)
		s.take(s.m.byHandle(h))
	}, func() {
		s.m.add(3, exact, int(s.m.next), s.q.Post(3, exact, int(s.m.next)))
	})
}

func (s *unexpectedMachine) Part(t *rapid.T) {
	drawParts(t, s.m.list, s.q.Part, func(h Handle) {
		_, ok := s.q.Remove(h)
		require.True(t, ok)
		s.m.take(s.m.byHandle(h))
	}, func() {
		s.m.add(3, exact, int(s.m.next), s.q.Add(3, int(s.m.next)))
	})
}

func drawParts(t *rapid.T, list []item, part func(uint32, int, func(Seq, int)) uint32, remove func(Handle), add func()) {
	most := rapid.IntRange(1, 100).Draw(t, "most")
	stride := rapid.IntRange(1, 7).Draw(t, "stride")
	grow := rapid.IntRange(0, 200).Draw(t, "grow")
	stay, gone := map[Seq]int{}, map[Seq]int{}
	backs := 0
	for _, e := range list {
		stay[e.seq] = e.v
		if e.back {
			backs++
		}
	}
	limit := Seq(0) // of those that were there at the beginning
	if len(list) != 0 {
		limit = list[len(list)-1].seq + 1
	}
	list = append([]item(nil), list...)
	for from, k := uint32(0), 0; ; k += stride {
		n, first := 0, from == 0
		from = part(from, most, func(seq Seq, v int) {
			n++
			if want, ok := stay[seq]; ok {
				require.Equal(t, want, v)
				delete(stay, seq)
				gone[seq] = v
				return
			}
			require.NotContains(t, gone, seq, "it is visited twice")
			require.GreaterOrEqual(t, seq, limit, "it has left the queue")
		})
		require.True(t, n <= most || first && n <= most+backs)
		if from == 0 {
			break
		}
		if k < len(list) {
			remove(list[k].h)
			delete(stay, list[k].seq)
		}
		if grow > 0 { // else a walk of parts of one entry would have no end
			add()
			grow--
		}
	}
	require.Empty(t, stay, "it was there all the time, and was not visited")
}

// TestPartOfNothing: a part of a queue without entries is short too.
func TestPartOfNothing(t *testing.T) {
	q, parts := NewPosted[int](1), 0
	for range 1000 {
		q.Post(1, exact, 1)
	}
	for range 1000 {
		q.Match(1)
	}
	for from, first := uint32(0), true; first || from != 0; first = false {
		from = q.Part(from, 1, func(Seq, int) { t.Fatal("nothing is there") })
		parts++
	}
	require.Greater(t, parts, 1)
}
