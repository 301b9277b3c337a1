//go:build invariants

package links

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/invariant"
	"github.com/tagmatch/tagmatch/internal/invariant/invarianttest"
	"github.com/tagmatch/tagmatch/transport/internal/format"
	"github.com/tagmatch/tagmatch/verbs"
)

// TestCheckRing: a buffer completes once, and is posted again once (V15). It is overwritten then.
func TestCheckRing(t *testing.T) {
	tr, _ := selfSender(t)
	posted := &verbs.WC{WRID: 3, ByteLen: 8, QPNum: tr.peers[0].qp.Num()}
	invarianttest.Violates(t, "V15", func() { tr.Return(posted) })
	_, msg := tr.Received(posted)
	require.Len(t, msg, 8)
	invarianttest.Violates(t, "once", func() { tr.Received(posted) })
	msg[0] = 1
	require.NotPanics(t, func() { tr.Return(posted) })
	require.NotPanics(t, func() { invariant.RequirePoison(msg, "it") })
}

// TestCheckBounce: a bounce buffer is returned once, and nothing writes to it while it is free,
// whether it was used before or not.
func TestCheckBounce(t *testing.T) {
	tr, _ := selfSender(t)
	slot, buf, ok := tr.bounce.Get()
	require.True(t, ok)
	tr.bounce.Put(slot)
	invarianttest.Violates(t, "once", func() { tr.bounce.Put(slot) })
	buf[0] = 1
	invarianttest.Violates(t, "poison", func() { tr.bounce.Get() })
	never := tr.bounce.free[len(tr.bounce.free)-1]
	tr.bounce.at(uint64(never))[7] = 1
	invarianttest.Violates(t, "poison", func() { tr.bounce.Get() })
}

// TestCheckCompleted: a send request completes once.
func TestCheckCompleted(t *testing.T) {
	tr, _ := selfSender(t)
	require.NoError(t, tr.SendEager(0, 1, 2, nil))
	qpn := tr.peers[0].qp.Num()
	// An unsignalled SEND has no completion.
	invarianttest.Violates(t, "once", func() { tr.Sent(&verbs.WC{WRID: kindSend, QPNum: qpn}) })
	tr.peers[0].signalled = tr.peers[0].posted
	require.NotPanics(t, func() { tr.Sent(&verbs.WC{WRID: kindSend, QPNum: qpn}) })
	invarianttest.Violates(t, "once", func() { tr.Sent(&verbs.WC{WRID: kindSend, QPNum: qpn}) })
}

// TestCheckBudget: what peers have outstanding is counted.
func TestCheckBudget(t *testing.T) {
	invarianttest.Thorough(t)
	tr, _ := selfSender(t)
	check := func() { tr.budget.check(tr.made, 0) }
	require.NotPanics(t, check)
	tr.budget.used++
	invarianttest.Violates(t, "budget", check)
	tr.budget.used--
}

// TestCheckRegion: a region is deregistered once.
func TestCheckRegion(t *testing.T) {
	tr, _ := selfSender(t)
	r, err := tr.Register(0, make([]byte, 8))
	require.NoError(t, err)
	require.NoError(t, r.Dereg())
	invarianttest.Violates(t, "once", func() { _ = r.Dereg() })
}

// TestCheckHeader checks V17: a tagged message is never sent as NO_TAG.
func TestCheckHeader(t *testing.T) {
	tr, _ := selfSender(t)
	for _, msg := range [][]byte{{byte(verbs.TMHNoTag), format.CtrlKind + 1}, {byte(verbs.TMHNoTag)}, {byte(verbs.TMHEager)}, make([]byte, 16), {9}} {
		invarianttest.Violates(t, "V17", func() { _ = tr.SendMarked(0, msg) })
	}
	invarianttest.Violates(t, "V17", func() {
		_ = tr.message(tr.peers[0], &tr.small, []byte{byte(verbs.TMHNoTag), verbs.TMHSize - 1: 0}, []byte("payload"), 0)
	})
}
