package flow

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

type send struct{ tag, number uint64 }

func pushed(q *queue[send], s *send) *send {
	s.number = q.push(s.tag, s)
	return s
}

// TestQueue compares the queue with a slice.
func TestQueue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q := queue[send]{seed: 1}
		var model []*send
		tag := rapid.Uint64Range(0, 3)
		t.Repeat(map[string]func(*rapid.T){
			"push": func(t *rapid.T) { model = append(model, pushed(&q, &send{tag: tag.Draw(t, "tag")})) },
			"remove": func(t *rapid.T) {
				if len(model) == 0 {
					return
				}
				i := rapid.IntRange(0, len(model)-1).Draw(t, "which")
				q.remove(model[i].number)
				model = slices.Delete(model, i, i+1)
			},
			"has": func(t *rapid.T) {
				want, mask := tag.Draw(t, "wanted"), tag.Draw(t, "mask")
				require.Equal(t, slices.ContainsFunc(model, func(s *send) bool { return matches(want, mask, s.tag) }), q.has(want, mask))
			},
			"part": func(t *rapid.T) { // with what is behind the first part removed meanwhile
				most, got := rapid.IntRange(1, 5).Draw(t, "most"), []*send(nil)
				visit := func(s *send) { got = append(got, s) }
				from := q.part(0, most, visit)
				if n := len(model); from != 0 && model[n-1].number >= from {
					q.remove(model[n-1].number)
					model = model[:n-1]
				}
				for from != 0 {
					from = q.part(from, most, visit)
				}
				require.True(t, slices.Equal(model, got))
			},
			"": func(t *rapid.T) {
				require.Equal(t, len(model), q.n)
				require.True(t, slices.Equal(model, slices.Collect(q.all())))
				if len(model) > 0 {
					require.Same(t, model[0], q.at(q.head).send)
				}
			},
		})
	})
}

// TestQueueHoles: sends that come and go behind one that stays take no memory, and those that wait
// then are in order.
func TestQueueHoles(t *testing.T) {
	var q queue[send]
	sends := []*send{pushed(&q, &send{tag: 1})}
	for range 10 * leastQueue {
		s := pushed(&q, &send{tag: 2})
		require.True(t, q.has(2, 3))
		q.remove(s.number)
		require.False(t, q.has(2, 3))
		require.Len(t, q.ring, leastQueue)
	}
	for range 10 * leastQueue {
		sends = append(sends, pushed(&q, &send{tag: 3}))
	}
	require.Equal(t, sends, slices.Collect(q.all()))
	for i := range len(sends) / 2 { // from both ends
		require.Same(t, sends[i], q.at(q.head).send)
		q.remove(sends[i].number)
		q.remove(sends[len(sends)-1-i].number)
	}
	require.Equal(t, 1, q.n)
}
