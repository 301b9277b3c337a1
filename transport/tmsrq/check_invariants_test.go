//go:build invariants

package tmsrq

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/invariant"
	"github.com/tagmatch/tagmatch/internal/invariant/invarianttest"
	"github.com/tagmatch/tagmatch/transport"
	"github.com/tagmatch/tagmatch/transport/transporttest"
	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/soft"
)

// deaf is a Sink that counts the ends of receives and the unexpected messages.
type deaf struct {
	transport.Sink
	n int
}

func (d *deaf) Greeting(int) []byte                          { return nil }
func (d *deaf) Connected(int, []byte) error                  { return nil }
func (d *deaf) Eager(int, uint32, uint64, []byte)            { d.n++ }
func (d *deaf) Matched(id uint64, _ int, _ uint32, _ uint64) {}
func (d *deaf) Delivered(id uint64, n uint64, err error)     { d.n++ }
func (d *deaf) Deleted(id uint64, ok bool)                   { d.n++ }
func newChecked(t *testing.T, tags int) (tr *Transport, d *deaf) {
	dev, err := soft.Open(soft.Config{Fabric: soft.NewFabric()})
	require.NoError(t, err)
	d = &deaf{}
	tr, err = New(Config{Device: dev, Size: 1, MaxTags: tags, SRQDepth: 64}, d)
	require.NoError(t, err)
	require.NoError(t, tr.Connect(0, tr.Address()))
	meet(t, tr)
	return tr, d
}

// meet connects a transport to itself.
func meet(t *testing.T, tr *Transport) {
	transporttest.Meet(t, func() { polls(t, tr) }, tr)
}

func polls(t *testing.T, tr *Transport) {
	for range 5 {
		_, err := tr.Poll()
		require.NoError(t, err)
	}
}

// TestCheckUnnamed: where a completion names no queue pair, the source is the peer's word. A rank
// that is not connected to this device is a fault of the peer, and not a Violation.
func TestCheckUnnamed(t *testing.T) {
	dev, err := soft.Open(soft.Config{Fabric: soft.NewFabric()})
	require.NoError(t, err)
	d := &deaf{}
	tr, err := New(Config{Device: dev, Size: 3, MaxTags: 4, SRQDepth: 64}, d)
	require.NoError(t, err)
	require.NoError(t, tr.Connect(0, tr.Address()))
	require.NoError(t, tr.Grant(0, 0))
	polls(t, tr)
	for claim, want := range map[uint32]string{0: "", 1: "rank 1, which is not connected to this device", 3: "the job has 3"} {
		require.NoError(t, tr.list.Add(uint64(claim), 5, whole, make([]byte, 8), 0))
		e := &tr.list.entries[tr.list.byID.Find(uint64(claim))]
		polled := tr.inv.Polls()
		tr.list.match(e, ^uint32(0), 5, claim)
		polled()
		if want == "" {
			require.NoError(t, e.bad)
			require.Equal(t, 0, e.src)
			continue
		}
		require.ErrorContains(t, e.bad, want)
		require.Equal(t, -1, e.src)
	}
}

const whole = ^uint64(0)

// TestCheckSound: receives that are deleted and matched break no rule. The transport has made the
// device strict, although its configuration does not ask for that.
func TestCheckSound(t *testing.T) {
	tr, d := newChecked(t, 4)
	for id := range uint64(20) {
		require.NoError(t, tr.list.Add(id, 5, whole, make([]byte, 8), 0))
		if id%2 == 0 {
			require.NoError(t, tr.list.Del(id, 0))
		} else {
			require.NoError(t, tr.SendEager(0, 0, 5, []byte("message")))
		}
		polls(t, tr)
	}
	require.Equal(t, 20, d.n)
	require.Panics(t, func() { _, _ = tr.SRQ().PostSRQOps(&verbs.OpsWR{Add: verbs.TagAdd{Tag: 3, Mask: 1}}) })
}

// TestCheckLargeList: a long list is checked now and then only, but always with invariant.Thorough.
func TestCheckLargeList(t *testing.T) {
	tr, _ := newChecked(t, 2*invariant.SmallList)
	require.NoError(t, tr.list.Add(7, 5, whole, make([]byte, 8), 0))
	polls(t, tr)
	tr.list.byID.Remove(7)
	require.NotPanics(t, tr.list.check)
	invarianttest.Thorough(t)
	invarianttest.Violates(t, "tags", tr.list.check)
}

// TestCheckList: the counters of the list contradict its entries, or the device.
func TestCheckList(t *testing.T) {
	for name, v := range map[string]struct {
		rule string
		do   func(tr *Transport)
	}{
		"an entry free and in use": {"tags", func(tr *Transport) { tr.list.free = append(tr.list.free, 1); tr.list.check() }},
		"an id that finds nothing": {"tags", func(tr *Transport) { tr.list.byID.Remove(7); tr.list.check() }},
		"a completion too many": {"V13", func(tr *Transport) {
			tr.list.entries[tr.list.byID.Find(7)].owed = -1
			tr.list.check()
		}},
		"a match of what is free": {"state", func(tr *Transport) { tr.list.move(&tr.list.entries[3], entryMatched) }},
		"an operation twice":      {"once", func(tr *Transport) { tr.list.done(&verbs.WC{WRID: kindSync<<kindShift | 5}) }},
		"operations over the top": {"V14", func(tr *Transport) {
			tr.list.reclaimed -= tr.list.depth
			_ = tr.list.Sync(0)
			tr.list.check()
		}},
		"a DEL of no entry": {"order", func(tr *Transport) {
			tr.list.enqueue(0, 0)
			tr.list.check()
		}},
		"a count of the future":  {"V8", func(tr *Transport) { _ = tr.list.Sync(1) }},
		"a class that is wrong":  {"V17", func(tr *Transport) { tr.checkClass(&verbs.WC{Opcode: verbs.WCTMNoTag}, []byte{byte(verbs.TMHEager)}) }},
		"a class that is wrong2": {"V17", func(tr *Transport) { tr.checkClass(&verbs.WC{Opcode: verbs.WCTMRecv}, []byte{byte(verbs.TMHFin)}) }},
		"a late write": {"poison", func(tr *Transport) {
			slot, buf, _ := tr.list.bounce.Get()
			tr.list.bounce.Put(slot)
			buf[2] = 1
			_, _, _ = tr.list.bounce.Get()
		}},
		"a Sink that polls": {"owner", func(tr *Transport) { defer tr.inv.Polls()(); _, _ = tr.Poll() }},
	} {
		t.Run(name, func(t *testing.T) {
			tr, _ := newChecked(t, 4)
			require.NoError(t, tr.list.Add(7, 5, whole, make([]byte, 8), 0))
			polls(t, tr)
			require.NotPanics(t, tr.list.check)
			invarianttest.Violates(t, v.rule, func() { v.do(tr) })
		})
	}
}
