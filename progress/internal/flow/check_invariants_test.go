//go:build invariants

package flow

import (
	"testing"

	"github.com/tagmatch/tagmatch/internal/invariant/invarianttest"
	"github.com/tagmatch/tagmatch/matching"
	"github.com/tagmatch/tagmatch/progress/internal/credit"
)

func TestSenderIsChecked(t *testing.T) {
	for name, spoil := range map[string]func(s *Sender[send], q *queue[send]){
		"sends miscounted":       func(_ *Sender[send], q *queue[send]) { q.n++ },
		"numbers out of order":   func(_ *Sender[send], q *queue[send]) { q.at(q.head).number += 2 },
		"not in the index":       func(_ *Sender[send], q *queue[send]) { q.index.Add(1, q.at(q.head).send) },
		"under another handle":   func(_ *Sender[send], q *queue[send]) { q.at(q.head).h++ },
		"wants beyond the slots": func(s *Sender[send], _ *queue[send]) { s.wants = make([]Want, Slots+1) },
		"nothing is held up":     func(s *Sender[send], q *queue[send]) { *q = queue[send]{} },
	} {
		t.Run(name, func(t *testing.T) {
			s, sends := heldUp(1, 2, 3)
			s.queue.has(1, exact)
			s.Remove(sends[0].number)
			s.Check(0)
			spoil(s, &s.queue)
			invarianttest.Violates(t, "list", func() { s.Check(0) })
		})
	}
}

func TestReceiverIsChecked(t *testing.T) {
	for name, spoil := range map[string]func(r *Receiver){
		"wants beyond the slots": func(r *Receiver) { r.wants = make([]sentWant, Slots+1) },
		"held up and not listed": func(r *Receiver) { r.memory.heldUp = nil },
		"listed for nothing":     func(r *Receiver) { r.episode++ },
	} {
		t.Run(name, func(t *testing.T) {
			m := NewMemory(credit.NewPool(0, 1, 1, 1), func(matching.Handle) bool { return true })
			r := m.Receiver(0)
			r.Held(Held{Episode: 1})
			r.Check(0, false)
			spoil(&r)
			invarianttest.Violates(t, "list", func() { r.Check(0, false) })
		})
	}
}
