package tmsrq

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/invariant"
	"github.com/tagmatch/tagmatch/transport"
	"github.com/tagmatch/tagmatch/transport/transporttest"
	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/soft"
)

// TestHeaderChanged: a peer that rewrites the header of a message which is lent in its memory,
// after the device has classified it, breaks the protocol. The count that is reported to the device
// still covers what the device has counted, no more and no less (V8).
func TestHeaderChanged(t *testing.T) {
	for name, c := range map[string]struct {
		send    func(tr *Transport) error
		op      verbs.TMHOpcode
		skipped uint32
	}{
		"counted, then not": {func(tr *Transport) error { return tr.SendEager(1, 0, 5, make([]byte, 64)) }, verbs.TMHNoTag, 1},
		"counted, then FIN": {func(tr *Transport) error { return tr.SendEager(1, 0, 5, make([]byte, 64)) }, verbs.TMHFin, 1},
		"not, then counted": {func(tr *Transport) error { return tr.SendCtrl(1, make([]byte, 64)) }, verbs.TMHEager, 0},
		"counted, unknown":  {func(tr *Transport) error { return tr.SendEager(1, 0, 5, make([]byte, 64)) }, 9, 1},
	} {
		t.Run(name, func(t *testing.T) {
			trs, rec := lenders(t)
			tr := trs[1]
			require.NoError(t, c.send(trs[0]))
			receiveChanged(t, tr, c.op)
			require.Empty(t, rec.Events)
			require.Equal(t, c.skipped, tr.skipped)
			for range 2 {
				_, err := tr.Poll()
				require.NoError(t, err)
			}
			require.Len(t, rec.Events, 1)
			require.Equal(t, "lost", rec.Events[0].Kind)
			require.ErrorContains(t, rec.Events[0].Err, "opcode")
		})
	}
}

// lenders opens two transports, the second with a recorder, on devices that lend messages.
func lenders(t *testing.T) (trs [2]*Transport, rec *transporttest.Recorder) {
	fabric := soft.NewFabric()
	rec = &transporttest.Recorder{}
	for i, sink := range []*transporttest.Recorder{{}, rec} {
		dev, err := soft.Open(soft.Config{Fabric: fabric, Rank: i})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, dev.Close()) })
		trs[i], err = New(Config{Device: dev, Rank: i, Size: 2, MaxTags: 4, SRQDepth: 64}, sink)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, trs[i].Close()) })
	}
	for _, tr := range trs {
		for k := range trs {
			require.NoError(t, tr.Connect(k, trs[k].Address()))
		}
	}
	transporttest.Meet(t, func() {
		for _, tr := range trs {
			_, err := tr.Poll()
			require.NoError(t, err)
		}
	}, trs[0], trs[1])
	return trs, rec
}

// rewriter changes the opcode of a lent message before the transport sees it.
type rewriter struct {
	tr   *Transport
	op   verbs.TMHOpcode
	done bool
}

func (r *rewriter) Complete(wc *verbs.WC) bool {
	if r.done = wc.Data != nil; r.done {
		wc.Data[0] = byte(r.op)
	}
	return (*handler)(r.tr).Complete(wc)
}

// receiveChanged is Poll for one message, whose opcode its sender changes to op.
func receiveChanged(t *testing.T, tr *Transport, op verbs.TMHOpcode) {
	t.Helper()
	if invariant.Enabled {
		defer tr.inv.Polls()()
	}
	r := rewriter{tr: tr, op: op}
	for i := 0; !r.done; i++ {
		require.Less(t, i, 100, "no message came")
		tr.Drain(&r)
	}
}

// TestAbandonedNamed: the transfer of a message that was sent in the name of another rank is given
// up, and only now a completion names the queue pair. That rank is not blamed for it.
func TestAbandonedNamed(t *testing.T) {
	trs, rec := lenders(t)
	tr := trs[1]
	require.NoError(t, tr.list.Add(1, 7, ^uint64(0), make([]byte, 8), 0))
	slot := uint32(tr.list.byID.Find(1))
	e := &tr.list.entries[slot]
	of0 := uint32(0)
	for tr.Rank(of0) != 0 {
		of0++
	}
	if invariant.Enabled {
		defer tr.inv.Polls()()
	}
	tr.list.match(e, ^uint32(0), 7, 1) // rank 1 itself
	tr.list.received(&verbs.WC{WRID: kindTag<<kindShift | uint64(e.gen)<<32 | uint64(slot), Status: verbs.WCTMRndvIncomplete,
		Flags: verbs.WCFlagTMDataValid, QPNum: of0})
	require.ErrorIs(t, rec.Events[1].Err, transport.ErrProtocol)
	require.NoError(t, tr.LinkErr(1))
	require.ErrorContains(t, tr.LinkErr(0), "it sends as rank 1")
}
