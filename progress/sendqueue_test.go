package progress

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestSendQueue compares the queue with a slice.
func TestSendQueue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var q sendQueue
		var model []*Op
		tag := rapid.Uint64Range(0, 3)
		t.Repeat(map[string]func(*rapid.T){
			"push": func(t *rapid.T) {
				op := &Op{tag: tag.Draw(t, "tag")}
				q.push(op)
				model = append(model, op)
			},
			"remove": func(t *rapid.T) {
				if len(model) == 0 {
					return
				}
				i := rapid.IntRange(0, len(model)-1).Draw(t, "which")
				q.remove(model[i])
				model = slices.Delete(model, i, i+1)
			},
			"has": func(t *rapid.T) {
				want, mask := tag.Draw(t, "wanted"), tag.Draw(t, "mask")
				require.Equal(t, slices.ContainsFunc(model, func(op *Op) bool { return (op.tag^want)&mask == 0 }), q.has(want, mask, 1))
			},
			"": func(t *rapid.T) {
				require.Equal(t, len(model), q.len())
				require.True(t, slices.Equal(model, slices.Collect(q.all())))
				if len(model) > 0 {
					require.Same(t, model[0], q.first())
				}
			},
		})
	})
}

// TestSendQueueHoles: sends that come and go behind one that stays take no memory, and those that
// wait then are in order.
func TestSendQueueHoles(t *testing.T) {
	var q sendQueue
	ops := []*Op{{tag: 1}}
	q.push(ops[0])
	for range 10 * leastQueue {
		op := &Op{tag: 2}
		q.push(op)
		require.True(t, q.has(2, 3, 1))
		q.remove(op)
		require.False(t, q.has(2, 3, 1))
		require.Len(t, q.ring, leastQueue)
	}
	for range 10 * leastQueue {
		op := &Op{tag: 3}
		ops = append(ops, op)
		q.push(op)
	}
	require.Equal(t, ops, slices.Collect(q.all()))
	for _, op := range ops {
		require.Same(t, op, q.first())
		q.remove(op)
	}
	require.Zero(t, q.len())
}
