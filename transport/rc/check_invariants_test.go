//go:build invariants

package rc

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/invariant"
	"github.com/tagmatch/tagmatch/internal/invariant/invarianttest"
	"github.com/tagmatch/tagmatch/transport"
	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/soft"
)

// keeper is a Sink that retains the slices it is lent, and calls back on each message.
type keeper struct {
	kept   [][]byte
	header *transport.RndvHdr
	do     func()
}

func (k *keeper) keep(b []byte) {
	k.kept = append(k.kept, b)
	if k.do != nil {
		k.do()
	}
}

func (k *keeper) Eager(_ int, _ uint32, _ uint64, payload []byte) { k.keep(payload) }
func (k *keeper) Ctrl(_ int, msg []byte)                          { k.keep(msg) }
func (k *keeper) Incomplete(_ uint64, h *transport.RndvHdr)       { k.Rndv(0, h) }
func (k *keeper) Rndv(_ int, h *transport.RndvHdr) {
	k.header = h
	k.keep(h.Extra)
}
func (k *keeper) Fin(int, uint32)                     {}
func (k *keeper) ReadDone(uint64, error)              {}
func (k *keeper) PeerLost(int, error)                 {}
func (k *keeper) Matched(uint64, int, uint32, uint64) {}
func (k *keeper) Delivered(uint64, uint64, error)     {}
func (k *keeper) Deleted(uint64, bool)                {}

// lone returns a transport connected to itself, rank 0 of 2.
func lone(t *testing.T, inline int) (*Transport, *keeper) {
	dev, err := soft.Open(soft.Config{Fabric: soft.NewFabric(soft.FabricOptions{}), MaxInline: inline})
	require.NoError(t, err)
	k := &keeper{}
	tr, err := New(Config{Device: dev, Size: 2, MaxEager: 256}, k)
	require.NoError(t, err)
	require.NoError(t, tr.Connect(0, tr.Address()))
	return tr, k
}

func polls(t *testing.T, tr *Transport) {
	for range 5 {
		_, err := tr.Poll()
		require.NoError(t, err)
	}
}

// TestCheckOwner: two goroutines at once, and a Sink that polls, are detected.
func TestCheckOwner(t *testing.T) {
	tr, k := lone(t, 0)
	leave := tr.inv.Enter("SendEager")
	said := make(chan string)
	go func() { said <- invarianttest.Violates(t, "owner", func() { _, _ = tr.Poll() }) }()
	text := <-said
	require.Contains(t, text, "Poll while SendEager is under way")
	require.Contains(t, text, "hold one lock")
	leave()

	require.NoError(t, tr.SendEager(0, 1, 2, nil))
	k.do = func() { require.NoError(t, tr.SendCtrl(0, []byte("posting is allowed"))); k.do = nil }
	require.NotPanics(t, func() { polls(t, tr) })
	require.NoError(t, tr.SendEager(0, 1, 2, nil))
	k.do = func() {
		go func() { said <- invarianttest.Violates(t, "owner", func() { _ = tr.SendFin(0, 1) }) }()
		<-said
		k.do = nil
	}
	require.NotPanics(t, func() { polls(t, tr) })
	require.NoError(t, tr.SendEager(0, 1, 2, nil))
	k.do = func() { _, _ = tr.Poll() }
	require.Contains(t, invarianttest.Violates(t, "owner", func() { polls(t, tr) }), "inside a Sink's method")
}

// TestCheckLent: a lent slice that a Sink retains is overwritten.
func TestCheckLent(t *testing.T) {
	tr, k := lone(t, 0)
	require.NoError(t, tr.SendEager(0, 1, 2, []byte("eager")))
	require.NoError(t, tr.SendCtrl(0, []byte("ctrl")))
	require.NoError(t, tr.SendRndv(0, &transport.RndvHdr{Tag: 3, Extra: []byte("extra")}))
	polls(t, tr)
	require.Len(t, k.kept, 3)
	for _, b := range k.kept {
		require.NotEmpty(t, b)
		require.NotPanics(t, func() { invariant.RequirePoison(b, "it") })
	}
	require.EqualValues(t, poisonWord, k.header.Tag)
}

// TestCheckSink: illegal calls of the Sink are detected.
func TestCheckSink(t *testing.T) {
	for name, v := range map[string]struct {
		rule string
		do   func(c *Checks)
	}{
		"a rank that is none":       {"sink", func(c *Checks) { c.Fin(2, 0) }},
		"a message of a lost rank":  {"sink", func(c *Checks) { c.PeerLost(1, nil); c.Ctrl(1, nil) }},
		"a loss twice":              {"once", func(c *Checks) { c.PeerLost(1, nil); c.PeerLost(1, nil) }},
		"a loss before its reads":   {"sink", func(c *Checks) { c.Reads(1, 7); c.PeerLost(1, nil) }},
		"a loss before its receive": {"sink", func(c *Checks) { c.Added(7); c.Matched(7, 1, 0, 0); c.PeerLost(1, nil) }},
		"a read twice":              {"once", func(c *Checks) { c.Reads(1, 7); c.ReadDone(7, nil); c.ReadDone(7, nil) }},
		"a read's slot twice":       {"once", func(c *Checks) { c.Reads(1, 7); c.ReadEnds(1); c.ReadEnds(1) }},
		"outside Poll":              {"sink", func(c *Checks) { c.polling = false; c.Fin(1, 0) }},
		"after Close":               {"sink", func(c *Checks) { c.Closed(); c.Fin(1, 0) }},
		"credit taken back":         {"credit", func(c *Checks) { c.Grants(1, 9); c.Grants(1, 9); c.Grants(1, 8) }},
		"matched twice":             {"V3", func(c *Checks) { c.Added(7); c.Matched(7, 1, 0, 0); c.Matched(7, 1, 0, 0) }},
		"matched after Drop":        {"V3", func(c *Checks) { c.Added(7); c.Drops(7, false); c.Matched(7, 1, 0, 0) }},
		"delivered unmatched":       {"V12", func(c *Checks) { c.Added(7); c.Delivered(7, 0, nil) }},
		"delivered twice": {"V12", func(c *Checks) {
			c.Added(7)
			c.Matched(7, 1, 0, 0)
			c.Delivered(7, 0, nil)
			c.Incomplete(7, &transport.RndvHdr{})
		}},
		"deleted when matched":    {"V12", func(c *Checks) { c.Added(7); c.Deletes(7); c.Matched(7, 1, 0, 0); c.Deleted(7, true) }},
		"deleted twice":           {"once", func(c *Checks) { c.Added(7); c.Deletes(7); c.Deleted(7, false); c.Deleted(7, false) }},
		"deleted after Drop":      {"once", func(c *Checks) { c.Added(7); c.Deletes(7); c.Drops(7, true); c.Deleted(7, false) }},
		"dropped when matched":    {"V12", func(c *Checks) { c.Added(7); c.Matched(7, 1, 0, 0); c.Drops(7, false) }},
		"added twice":             {"once", func(c *Checks) { c.Added(7); c.Added(7) }},
		"handled more than given": {"V8", func(c *Checks) { c.Eager(1, 0, 0, nil); c.Told(0); c.Told(1); c.Told(2) }},
	} {
		t.Run(name, func(t *testing.T) {
			c := Check(&keeper{}, nil, 2)
			c.polling = true
			invarianttest.Violates(t, v.rule, func() { v.do(c) })
		})
	}
}

// TestCheckRing checks V15: a buffer is posted again once, and only after its message was handled.
func TestCheckRing(t *testing.T) {
	tr, _ := lone(t, 0)
	invarianttest.Violates(t, "V15", func() { _ = tr.ring.Done(3) }) // posted already
	invarianttest.Violates(t, "V15", func() { tr.ring.Filled(3, 8) })
	tr.ring.Took(3)
	invarianttest.Violates(t, "once", func() { tr.ring.Took(3) })
	require.Len(t, tr.ring.Filled(3, 8), 8)
	invarianttest.Violates(t, "V15", func() { _ = tr.ring.Done(3) }) // not handled
	tr.ring.Handled(3)
	require.NotPanics(t, func() { _ = tr.ring.Done(3) })
	require.NotPanics(t, func() { invariant.RequirePoison(tr.ring.slab[3*tr.ring.size:][:8], "it") })
}

// TestCheckBounce: a bounce buffer is returned once, and nothing writes to it while it is free.
func TestCheckBounce(t *testing.T) {
	tr, _ := lone(t, 64)
	slot, buf, ok := tr.bounce.Get()
	require.True(t, ok)
	tr.bounce.Put(slot)
	invarianttest.Violates(t, "once", func() { tr.bounce.Put(slot) })
	buf[0] = 1
	invarianttest.Violates(t, "poison", func() { tr.bounce.Get() })
}

// TestCheckCompleted: a send request completes once.
func TestCheckCompleted(t *testing.T) {
	tr, _ := lone(t, 0)
	require.NoError(t, tr.SendEager(0, 1, 2, nil))
	qpn := tr.peers[0].qp.Num()
	// An unsignalled SEND has no completion.
	invarianttest.Violates(t, "once", func() { tr.Completed(&verbs.WC{WRID: kindSend, QPNum: qpn}) })
	tr.peers[0].waiting = 2
	require.NotPanics(t, func() { tr.Completed(&verbs.WC{WRID: kindSend, QPNum: qpn}) })
	invarianttest.Violates(t, "once", func() { tr.Completed(&verbs.WC{WRID: kindSend, QPNum: qpn}) })
}

// TestCheckRegion: a region is deregistered once.
func TestCheckRegion(t *testing.T) {
	tr, _ := lone(t, 0)
	r, err := tr.Register(0, make([]byte, 8))
	require.NoError(t, err)
	require.NoError(t, r.Dereg())
	invarianttest.Violates(t, "once", func() { _ = r.Dereg() })
}

// TestCheckHeader checks V17: a tagged message is never sent as NO_TAG.
func TestCheckHeader(t *testing.T) {
	tr, _ := lone(t, 0)
	for _, msg := range [][]byte{{byte(verbs.TMHNoTag), ctrlKind + 1}, {byte(verbs.TMHNoTag)}, {byte(verbs.TMHEager)}, make([]byte, 16), {9}} {
		invarianttest.Violates(t, "V17", func() { _ = tr.SendMarked(0, msg) })
	}
	invarianttest.Violates(t, "V17", func() {
		tr.smallB[0] = byte(verbs.TMHNoTag)
		_ = tr.message(&tr.peers[0], verbs.TMHSize, []byte("payload"))
	})
}
