package soft

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/invariant"
	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/hook"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/wire"
	"github.com/tagmatch/tagmatch/verbs/verbstest"
)

// tagRig is a device whose tag-matching SRQ is used without a peer.
func tagRig(tb testing.TB, tm hook.TM) (*Device, verbs.PD, verbs.CQ, *sharedQueue) {
	d, err := Open(Config{Fabric: NewFabric()}.withTM(tm))
	require.NoError(tb, err)
	pd, err := d.AllocPD()
	require.NoError(tb, err)
	cq, err := d.CreateCQ(verbs.CQInitAttr{CQE: 4096, WCFlags: verbs.WCExWithTMInfo})
	require.NoError(tb, err)
	srq, err := pd.CreateSRQ(&verbs.SRQInitAttr{Mask: verbs.SRQInitType | verbs.SRQInitCQ | verbs.SRQInitTM, Type: verbs.SRQTypeTM, CQ: cq,
		SRQAttr: verbs.SRQAttr{MaxWR: 64}, TM: verbs.TMCap{MaxNumTags: 127, MaxOps: 256}})
	require.NoError(tb, err)
	return d, pd, cq, srq.(*sharedQueue)
}

// addAndMatch is a tagged receive from its ADD to its completion: post, match, poll.
func addAndMatch(tb testing.TB, n int, run func(f func())) {
	_, pd, cq, srq := tagRig(tb, hook.TM{})
	buf := make([]byte, 64)
	mr, err := pd.RegMR(buf, verbs.AccessLocalWrite)
	require.NoError(tb, err)
	qi, err := pd.CreateQP(&verbs.QPInitAttr{SendCQ: cq, RecvCQ: cq, SRQ: srq, Type: verbs.QPTRC})
	require.NoError(tb, err)
	q := qi.(*queuePair)
	q.state, q.attr.PathMTU = verbs.QPSRTR, verbs.MTU4096
	wr := verbs.OpsWR{Flags: verbs.OpsSignaled, Add: verbs.TagAdd{SGList: []verbs.SGE{{Data: buf, LKey: mr.LKey()}}, Mask: ^uint64(0)}}
	msg := make([]byte, verbs.TMHSize+8)
	h := wire.Header{Op: wire.OpSend, Flags: wire.FlagFirst | wire.FlagLast, Length: uint32(len(msg)), Total: uint64(len(msg))}
	tb.Cleanup(func() { require.NoError(tb, mr.Dereg()) })
	var wc [4]verbs.WC
	var got verbstest.Collector
	tag := uint64(0)
	run(func() {
		for range n {
			tag++
			wr.Add.Tag = tag
			if _, err := srq.PostSRQOps(&wr); err != nil {
				tb.Fatal(err)
			}
			verbs.TMH{Opcode: verbs.TMHEager, Tag: tag}.Put(msg)
			h.PSN = q.expect
			if !q.recvTM(nil, &h, msg) {
				tb.Fatal("refused")
			}
			got.WCs = wc[:0]
			if k, _ := cq.Drain(&got, len(wc)); k != 2 || wc[1].Tag != tag || wc[1].ByteLen != 8 {
				tb.Fatalf("%d completions: %+v", k, wc[1])
			}
		}
	})
}

// TestTagPathAllocatesNothing is what a tagged receive costs in memory, from ADD to the completion.
func TestTagPathAllocatesNothing(t *testing.T) {
	addAndMatch(t, 10, func(f func()) {
		f()
		if n := testing.AllocsPerRun(100, f); n != 0 && !invariant.Enabled {
			t.Errorf("%v allocations in 10 receives", n)
		}
	})
}

// BenchmarkTagMatch is ADD, match and poll of one small receive.
func BenchmarkTagMatch(b *testing.B) {
	addAndMatch(b, b.N, func(f func()) {
		b.ReportAllocs()
		b.ResetTimer()
		f()
	})
}
