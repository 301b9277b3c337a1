//go:build invariants

package unexpected

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/invariant"
	"github.com/tagmatch/tagmatch/internal/invariant/invarianttest"
)

// filled has an eager message with tag 11 and requests with tags 12 and 13, of ranks 0 and 1.
func filled() *Queue {
	q := New(2, 0, 1)
	q.KeepEager(0, 11, []byte("eager"))
	q.KeepRequest(0, 12, q.NextSeq(), Request{Name: 12})
	q.KeepRequest(1, 13, q.NextSeq(), Request{Name: 13})
	return q
}

// of is the message with a tag.
func (q *Queue) of(tag uint64) *Message {
	m, _, _ := q.arrived.Find(tag, exact)
	return m
}

// requeue matches a request and puts it back.
func (q *Queue) requeue(tag uint64) {
	m, _ := q.Match(tag, exact)
	src, seq, r := int(m.Src), m.Seq, m.Request
	q.Drop(m)
	q.Requeue(src, tag, seq, r)
}

func TestQueueIsChecked(t *testing.T) {
	for name, spoil := range map[string]struct {
		rule string
		do   func(q *Queue)
	}{
		"message out of order":         {"V1", func(q *Queue) { q.of(12).Seq = 0 }},
		"message freed":                {"pool", func(q *Queue) { q.of(12).Src = poisonRank }},
		"message freed while held":     {"pool", func(q *Queue) { m, _ := q.Match(12, exact); m.Src = poisonRank }},
		"bytes miscounted":             {"credit", func(q *Queue) { q.bytes++ }},
		"request under another handle": {"list", func(q *Queue) { q.of(12).handle++ }},
		"eager message requeued":       {"list", func(q *Queue) { q.requeue(12); q.requeued[0].Rndv = false }},
		"requeued out of order":        {"V1", func(q *Queue) { q.requeue(12); q.requeued = append(q.requeued, q.requeued[0]) }},
		"request without its source":   {"list", func(q *Queue) { q.sources[0].newest = nil }},
		"request of another":           {"list", func(q *Queue) { s := q.sources; s[0], s[1] = s[1], s[0] }},
		"name of no request":           {"list", func(q *Queue) { q.sources[0].find(12); q.sources[0].named[1] = nil }},
		"request without its name":     {"list", func(q *Queue) { q.sources[0].named = map[uint32]*Message{} }},
	} {
		t.Run(name, func(t *testing.T) {
			q := filled()
			q.Check()
			spoil.do(q)
			invarianttest.Violates(t, spoil.rule, q.Check)
		})
	}
}

// TestSameNames: a peer that gives several requests the same name breaks no rule of the queue, in
// whatever order they go.
func TestSameNames(t *testing.T) {
	for _, indexed := range []bool{false, true} {
		for _, first := range []uint64{1, 2, 3} {
			q := New(1, 0, 1)
			for tag := uint64(1); tag <= 3; tag++ {
				q.KeepRequest(0, tag, q.NextSeq(), Request{Name: 5})
				if indexed {
					q.sources[0].find(5)
				}
				q.Check()
			}
			m, ok := q.Match(first, exact)
			require.True(t, ok)
			q.Drop(m)
			q.Check()
			q.Withdraw(0, 5)
			q.Check()
			q.DropLost(0, space)
			q.Check()
			require.Zero(t, q.Len())
		}
	}
}

// What the queue would have to do wrong with a receive.
func TestMatchIsChecked(t *testing.T) {
	for name, do := range map[string]struct {
		rule, text string
		f          func(q *Queue)
	}{
		"later message": {"V1", "not get the oldest message", func(q *Queue) {
			m, _ := q.arrived.Match(12, exact)
			q.inv.match(q, 0, 0, m)
		}},
		"later message than a requeued one": {"V1", "not get the oldest message", func(q *Queue) {
			q.requeue(12)
			q.inv.match(q, 12, exact, &Message{Tag: 12, Seq: 1 << 20})
		}},
		"message passed over": {"V1", "not get the oldest message", func(q *Queue) { q.inv.match(q, 11, exact, nil) }},
		"message of another tag": {"V1", "gets message", func(q *Queue) {
			m, _ := q.arrived.Match(12, exact)
			q.inv.match(q, 13, exact, m)
		}},
		"message stays":          {"V3", "waits for another", func(q *Queue) { q.inv.match(q, 11, exact, q.of(11)) }},
		"message that was freed": {"V3", "another has had", func(q *Queue) { q.of(11).poison(); q.Match(11, exact) }},
		"found in wrong order": {"V1", "not get the oldest message", func(q *Queue) {
			q.KeepEager(0, 12, nil)
			q.of(12).Seq = 1 << 20
			q.Match(12, exact)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			q := filled()
			require.Contains(t, invarianttest.Violates(t, do.rule, func() { do.f(q) }), do.text)
		})
	}
}

func TestMemoryIsChecked(t *testing.T) {
	var b buffers
	b.init(1 << 20)
	buf := b.get(100)
	copy(buf, "left")
	b.put(buf)
	require.Equal(t, bytes.Repeat([]byte{invariant.PoisonByte}, 100), buf)
	buf[3] = 1
	invarianttest.Violates(t, "poison", func() { b.get(100) })
	r := records{most: 1}
	m := r.get()
	r.put(m)
	invarianttest.Violates(t, "pool", func() { r.put(m) })
	m.Tag, m.Seq = 1, 1
	invarianttest.Violates(t, "poison", func() { r.get() })
	m = r.get()
	m.Src, m.next = 0, m
	invarianttest.Violates(t, "list", func() { r.put(m) })
}
