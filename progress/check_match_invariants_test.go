//go:build invariants

package progress

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/invariant"
	"github.com/tagmatch/tagmatch/internal/invariant/invarianttest"
	"github.com/tagmatch/tagmatch/transport"
)

// misplace puts the oldest receive of those with this tag to the end of the posted-receive queue,
// which then finds the next one first.
func misplace(e *Engine, tag uint64) {
	op, _, _ := e.posted.Find(tag)
	reorder(e, op)
}

// What the list of receives would have to do wrong with a message that arrives, and each place
// where software looks at what it did.
func TestMatchesAreChecked(t *testing.T) {
	breaches(t, map[string]breach{
		"later receive": {"V2: not go to the oldest receive", func(e *Engine) {
			op := opOf(e, 22)
			e.posted.Remove(op.handle)
			e.inv.received(e, 22, op)
		}},
		"receive passed over": {"V2: not go to the oldest receive", func(e *Engine) { e.inv.received(e, 20, nil) }},
		"receive of another tag": {"V2: does not match", func(e *Engine) {
			op := opOf(e, 20)
			e.posted.Remove(op.handle)
			e.inv.received(e, 21, op)
		}},
		"receive stays in the list": {"V3: waits for another", func(e *Engine) { e.inv.received(e, 20, opOf(e, 20)) }},
		"receive matched before": {"V3: that is matched", func(e *Engine) {
			op := opOf(e, 20)
			op.state = opMatched
			e.inv.received(e, 20, op)
		}},
		"receive that has ended": {"V3: has ended", func(e *Engine) {
			op := opOf(e, 20)
			op.SetEnded()
			e.inv.received(e, 20, op)
		}},
		"of an eager message": {"V2", func(e *Engine) { misplace(e, 22); e.eagerLocked(0, 0, 22, nil) }},
		"of a rendezvous": {"V2", func(e *Engine) {
			misplace(e, 22)
			var extra [rndvExtraLen]byte
			rndvExtra{0}.encode(&extra)
			e.peers[0].offer(&transport.RndvHdr{Tag: 22, Len: 100, Extra: extra[:]})
		}},
		"by the device": {"V2", func(e *Engine) {
			op := opOf(e, 21)
			op.tag = 20 // the later of two
			e.inv.polling = true
			(*sink)(e).Matched(op.slot.id(), 0, 0, 20)
		}},
	}, nil)
}

// A match in a long list is looked at now and then, unless that is not enough.
func TestMatchInLongListIsChecked(t *testing.T) {
	_, e := busy(t)
	for tag := range uint64(invariant.SmallList) {
		e.Irecv(0, 100+tag, exact, make([]byte, 8))
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.inv.matches = 0
	pass := func() { e.inv.received(e, 20, nil) }
	for range invariant.CheckEach - 1 {
		require.NotPanics(t, pass)
	}
	broken(t, "V2", pass)
	require.NotPanics(t, pass)
	invarianttest.Thorough(t)
	broken(t, "V2", pass)
}
