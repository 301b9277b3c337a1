package soft

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/hook"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/wire"
)

// knobRig is a tag-matching SRQ with a QP that the test hands packets to as if a peer had sent
// them.
type knobRig struct {
	t   *testing.T
	d   *Device
	cq  verbs.CQ
	srq *sharedQueue
	q   *queuePair
	mr  verbs.MR
	buf []byte
	ids uint64
}

func newKnobRig(t *testing.T, tm hook.TM) *knobRig {
	r := &knobRig{t: t, buf: make([]byte, 8192)}
	var pd verbs.PD
	r.d, pd, r.cq, r.srq = tagRig(t, tm)
	var err error
	r.mr, err = pd.RegMR(r.buf, verbs.AccessLocalWrite)
	require.NoError(t, err)
	t.Cleanup(r.withdraw)
	qi, err := pd.CreateQP(&verbs.QPInitAttr{SendCQ: r.cq, RecvCQ: r.cq, SRQ: r.srq, Type: verbs.QPTRC})
	require.NoError(t, err)
	r.q = qi.(*queuePair)
	r.q.state, r.q.attr.PathMTU = verbs.QPSRTR, verbs.MTU1024
	return r
}

func (r *knobRig) sg() []verbs.SGE { return []verbs.SGE{{Data: r.buf, LKey: r.mr.LKey()}} }

// withdraw ends the registration of the rig's memory, unless that has been done.
func (r *knobRig) withdraw() {
	r.t.Helper()
	if r.mr != nil {
		require.NoError(r.t, r.mr.Dereg())
		r.mr = nil
	}
}

func (r *knobRig) untagged(n int) {
	for range n {
		_, err := r.srq.PostSRQRecv(&verbs.RecvWR{WRID: 1000, SGList: r.sg()})
		require.NoError(r.t, err)
	}
}

// op posts a list operation without polling.
func (r *knobRig) op(op verbs.OpsOpcode, flags verbs.OpsFlags, count, hnd uint32, tag uint64) (uint32, error) {
	r.ids++
	wr := verbs.OpsWR{Opcode: op, Flags: flags, UnexpectedCnt: count, Handle: hnd, WRID: r.ids}
	if op == verbs.WRTagAdd {
		wr.Add = verbs.TagAdd{RecvWRID: 100 + tag, SGList: r.sg(), Tag: tag, Mask: ^uint64(0)}
	}
	_, err := r.srq.PostSRQOps(&wr)
	return wr.Handle, err
}

// must is op that succeeds.
func (r *knobRig) must(op verbs.OpsOpcode, flags verbs.OpsFlags, count, hnd uint32, tag uint64) uint32 {
	r.t.Helper()
	h, err := r.op(op, flags, count, hnd, tag)
	require.NoError(r.t, err)
	return h
}

// eager hands a message, or its first packet of half the length, to the device.
func (r *knobRig) eager(tag uint64, n int, half bool) bool {
	msg := make([]byte, verbs.TMHSize+n)
	verbs.TMH{Opcode: verbs.TMHEager, Tag: tag}.Put(msg)
	h := wire.Header{Op: wire.OpSend, Flags: wire.FlagFirst | wire.FlagLast, Status: 7, PSN: r.q.expect, Total: uint64(len(msg))}
	if half {
		h.Flags, msg = wire.FlagFirst, msg[:len(msg)/2]
	}
	h.Length = uint32(len(msg))
	ok, _ := r.q.recvTM(nil, &h, msg)
	return ok
}

// rest hands the last packet of the message under way, with the n bytes that are missing, to the
// device.
func (r *knobRig) rest(n int) {
	r.t.Helper()
	h := wire.Header{Op: wire.OpSend, Flags: wire.FlagLast, Status: 7, PSN: r.q.rx.psn, Length: uint32(n), Total: r.q.rx.total}
	ok, _ := r.q.recvTM(nil, &h, make([]byte, n))
	require.True(r.t, ok)
}

func (r *knobRig) poll() []verbs.WC {
	r.t.Helper()
	wc := make([]verbs.WC, 64)
	n, err := r.cq.PollCQ(wc)
	require.NoError(r.t, err)
	return wc[:n]
}

func (r *knobRig) one() verbs.WC {
	r.t.Helper()
	wc := r.poll()
	require.Len(r.t, wc, 1)
	return wc[0]
}

// strictEvent takes the event by which the device exposes its program.
func (r *knobRig) strictEvent(want bool) {
	r.t.Helper()
	ev, ok := r.d.PollAsync()
	require.Equal(r.t, want, ok, "%+v", ev)
	if ok {
		require.Equal(r.t, verbs.EventSRQErr, ev.Type)
		require.ErrorIs(r.t, ev.Err, syscall.EINVAL)
	}
}

const (
	sig     = verbs.OpsSignaled
	tsync   = verbs.OpsTMSync
	sigSync = verbs.OpsSignaled | verbs.OpsTMSync
)

func TestSyncReqAsSpecified(t *testing.T) {
	r := newKnobRig(t, hook.TM{})
	r.untagged(3)
	r.must(verbs.WRTagAdd, sigSync, 0, 0, 1)
	require.Zero(t, r.one().Flags)
	require.True(t, r.eager(9, 1, false))
	require.Zero(t, r.one().Flags)
	h := r.must(verbs.WRTagAdd, sigSync, 0, 0, 2)
	require.Equal(t, verbs.WCFlagTMSyncReq, r.one().Flags)
	r.must(verbs.WRTagSync, sig, 0, 0, 0)
	require.Zero(t, r.one().Flags)
	r.must(verbs.WRTagDel, sigSync, 1, h, 0) // synchronised by itself
	require.Zero(t, r.one().Flags)
}

func TestSyncReqOfMLX5(t *testing.T) {
	r := newKnobRig(t, hook.TM{QuirkSyncReq: true})
	r.untagged(3)
	h := r.must(verbs.WRTagAdd, sigSync, 0, 0, 1)
	require.Zero(t, r.one().Flags)
	require.True(t, r.eager(9, 1, false))
	require.Zero(t, r.one().Flags)
	r.must(verbs.WRTagDel, sigSync, 1, h, 0) // compared with the count of the ADD
	require.Equal(t, verbs.WCFlagTMSyncReq, r.one().Flags)
	r.must(verbs.WRTagAdd, sigSync, 1, 0, 1)
	require.Zero(t, r.one().Flags)
	r.must(verbs.WRTagAdd, sigSync, 1+1<<16, 0, 1) // 16 bits against 32
	require.Equal(t, verbs.WCFlagTMSyncReq, r.one().Flags)
}

// 14: with 2^14 unexpected messages and no operation their completions ask for a SYNC, as specified
// and as mlx5 does.
func TestRace14SyncReq(t *testing.T) {
	for _, quirk := range []bool{false, true} {
		r := newKnobRig(t, hook.TM{QuirkSyncReq: quirk, InitialCount: 60000})
		for i := range 0x4001 {
			r.untagged(1)
			require.True(t, r.eager(9, 1, false))
			require.Equal(t, i >= 0x3fff, r.one().Flags == verbs.WCFlagTMSyncReq, "message %d", i)
		}
		r.must(verbs.WRTagSync, tsync, 60000+0x4001, 0, 0)
		r.untagged(1)
		require.True(t, r.eager(9, 1, false))
		require.Equal(t, quirk, r.one().Flags == verbs.WCFlagTMSyncReq) // a SYNC does not move mlx5's count
	}
}

// 13: matching goes on past 65536 unexpected messages, and an entry that comes with a count that is
// one behind stays dormant, also where that is the larger number.
func TestRace13CountWraps(t *testing.T) {
	r := newKnobRig(t, hook.TM{})
	n := uint32(0)
	unexpected := func(tag uint64) {
		r.untagged(1)
		require.True(t, r.eager(tag, 1, false))
		require.Zero(t, r.one().Flags&verbs.WCFlagTMMatch, "message %d", n)
		n++
	}
	for n < 70_000 {
		unexpected(9)
		if n%(1<<14) > 1 && (n < 65530 || n > 65540) {
			continue
		}
		h := r.must(verbs.WRTagAdd, tsync, n-1, 0, 5)
		unexpected(5)
		r.must(verbs.WRTagDel, tsync, n, h, 0)
		r.must(verbs.WRTagAdd, tsync, n, 0, 6)
		require.True(t, r.eager(6, 1, false))
		require.NotZero(t, r.one().Flags&verbs.WCFlagTMMatch, "message %d", n)
		r.must(verbs.WRTagSync, sig, 0, 0, 0)
		r.one()
	}
}

func TestStrict(t *testing.T) {
	r := newKnobRig(t, hook.TM{Strict: true})
	r.untagged(8)
	_, err := r.srq.PostSRQOps(&verbs.OpsWR{Opcode: verbs.WRTagAdd, Add: verbs.TagAdd{Tag: 3, Mask: 1}})
	require.ErrorIs(t, err, syscall.EINVAL, "V19")

	h := r.must(verbs.WRTagAdd, tsync, 0, 0, 1)
	r.must(verbs.WRTagDel, tsync, 0, h, 0)
	r.strictEvent(true) // V11: it was live

	require.True(t, r.eager(9, 1, false))
	r.one()
	h = r.must(verbs.WRTagAdd, tsync, 0, 0, 1)
	r.must(verbs.WRTagDel, tsync, 1, h, 0) // dormant: as it should be (TMO 5.3)
	r.strictEvent(false)

	h = r.must(verbs.WRTagAdd, tsync, 1, 0, 2)
	require.True(t, r.eager(2, 1, false))
	r.must(verbs.WRTagDel, tsync, 1, h, 0)
	r.strictEvent(true)
	require.Equal(t, verbs.WCGeneralErr, r.one().Status)
	_, err = r.op(verbs.WRTagDel, 0, 0, h, 0)
	require.ErrorIs(t, err, syscall.EINVAL, "V13")

	for err = nil; err == nil; {
		_, err = r.op(verbs.WRTagSync, 0, 0, 0, 0)
	}
	require.ErrorIs(t, err, syscall.EINVAL, "V14")
	r.must(verbs.WRTagSync, sig, 0, 0, 0)
}

// TestForcedDel: an unsignalled DEL gives its slot back at once, and the completions of a removed
// entry come as ever.
func TestForcedDel(t *testing.T) {
	r := newKnobRig(t, hook.TM{})
	r.untagged(1)
	require.True(t, r.eager(9, 1, false))
	r.one()
	for i := range 1000 {
		var hs []uint32
		for k := range uint64(127) {
			hs = append(hs, r.must(verbs.WRTagAdd, tsync, 0, 0, k))
		}
		_, err := r.op(verbs.WRTagAdd, tsync, 0, 0, 500)
		require.ErrorIs(t, err, syscall.ENOMEM)
		for _, h := range hs {
			r.must(verbs.WRTagDel, tsync, 0, h, 0)
		}
		r.must(verbs.WRTagSync, sig, 0, 0, 0)
		require.Len(t, r.poll(), 1, i)
	}
}

// TestSlotWaitsForPolling: a slot is not free before its last completion was polled (TMO 3.4, V13).
func TestSlotWaitsForPolling(t *testing.T) {
	r := newKnobRig(t, hook.TM{})
	for k := range uint64(127) {
		r.must(verbs.WRTagAdd, tsync, 0, 0, k)
	}
	require.True(t, r.eager(5, 1, false))
	_, err := r.op(verbs.WRTagAdd, tsync, 0, 0, 5)
	require.ErrorIs(t, err, syscall.ENOMEM)
	r.one()
	r.must(verbs.WRTagAdd, tsync, 0, 0, 5)
}

// TestTwoCompletions: TMH and payload above the path MTU give MATCH and DATA_VALID apart.
func TestTwoCompletions(t *testing.T) {
	for _, c := range []struct{ mtu, n, want int }{{0, 1008, 1}, {0, 1009, 2}, {64, 48, 1}, {64, 49, 2}, {8000, 2000, 1}} {
		r := newKnobRig(t, hook.TM{MTU: c.mtu})
		r.must(verbs.WRTagAdd, tsync, 0, 0, 1)
		require.True(t, r.eager(1, c.n, false))
		wc := r.poll()
		require.Len(t, wc, c.want)
		require.Equal(t, uint32(c.n), wc[c.want-1].ByteLen)
		if c.want == 2 {
			require.Zero(t, wc[1].Tag, "DATA_VALID alone has no tag (TMO 4.4)")
			require.Equal(t, uint64(1), wc[0].Tag)
		}
	}
}

func TestRecvUnexpected(t *testing.T) {
	for _, recv := range []bool{false, true} {
		r := newKnobRig(t, hook.TM{RecvUnexpected: recv})
		r.untagged(1)
		require.True(t, r.eager(1, 8, false))
		require.Equal(t, recv, r.one().Opcode == verbs.WCRecv)
	}
}

// TestFailureInMidMessage: whoever got MATCH gets an end, once; a message that was counted and will
// not be reported is taken out of the count, or software could never catch up.
func TestFailureInMidMessage(t *testing.T) {
	for _, end := range []func(q *queuePair){
		func(q *queuePair) { q.toErr(verbs.WCWRFlushErr, q.reclaimed, true, 0) },
		func(q *queuePair) { require.NoError(t, q.Destroy()) },
	} {
		r := newKnobRig(t, hook.TM{})
		r.must(verbs.WRTagAdd, tsync, 0, 0, 1)
		require.True(t, r.eager(1, 200, true))
		require.Equal(t, verbs.WCFlagTMMatch, r.one().Flags)
		end(r.q)
		w := r.one()
		require.Equal(t, verbs.WCTMRndvIncomplete, w.Status)
		require.Equal(t, verbs.WCFlagTMDataValid, w.Flags)
		require.Equal(t, uint64(101), w.WRID)

		r = newKnobRig(t, hook.TM{})
		r.untagged(1)
		require.True(t, r.eager(1, 200, true))
		require.Empty(t, r.poll())
		end(r.q)
		require.Equal(t, verbs.WCWRFlushErr, r.one().Status)
		require.Zero(t, r.srq.tm.h)
	}
}

// TestRegionGoneInMidMessage: a message whose buffer is withdrawn between its packets ends at the
// next of them, once and with an error, as does the queue pair. It is not counted if it was not
// matched.
func TestRegionGoneInMidMessage(t *testing.T) {
	for _, tagged := range []bool{true, false} {
		r := newKnobRig(t, hook.TM{})
		id := uint64(1000)
		if tagged {
			id = 101
			r.must(verbs.WRTagAdd, tsync, 0, 0, 1)
		} else {
			r.untagged(1)
		}
		require.True(t, r.eager(1, 200, true))
		if tagged {
			require.Equal(t, verbs.WCFlagTMMatch, r.one().Flags)
		} else {
			require.Empty(t, r.poll())
			require.EqualValues(t, 1, r.srq.tm.h)
		}
		r.withdraw()
		r.rest(108)
		require.Equal(t, verbs.WC{WRID: id, Status: verbs.WCLocProtErr, Opcode: verbs.WCTMRecv, QPNum: r.q.Num()}, r.one())
		require.Equal(t, verbs.QPSErr, r.q.State())
		require.Equal(t, response{op: wire.OpNak, psn: r.q.expect, status: uint8(verbs.WCRemOpErr)}, *r.q.resp.front())
		require.Zero(t, r.srq.tm.h)
		require.Empty(t, r.poll())
	}
}

// TestTagQueueSizes: a tag-matching SRQ has room for a tag and an operation, and for no more of
// them than the device's.
func TestTagQueueSizes(t *testing.T) {
	d, err := Open(Config{Fabric: NewFabric()}.withTM(hook.TM{MaxNumTags: 5, MaxOps: 6}))
	require.NoError(t, err)
	require.EqualValues(t, 5, d.Attr().TM.MaxNumTags)
	require.EqualValues(t, 6, d.Attr().TM.MaxOps)
	pd, err := d.AllocPD()
	require.NoError(t, err)
	cq, err := d.CreateCQ(verbs.CQInitAttr{CQE: 16, WCFlags: verbs.WCExWithTMInfo})
	require.NoError(t, err)
	for size, want := range map[verbs.TMCap]error{
		{MaxNumTags: 1, MaxOps: 1}: nil,
		{MaxNumTags: 5, MaxOps: 6}: nil,
		{MaxNumTags: 0, MaxOps: 1}: syscall.EINVAL,
		{MaxNumTags: 1, MaxOps: 0}: syscall.EINVAL,
		{MaxNumTags: 6, MaxOps: 6}: syscall.EINVAL,
		{MaxNumTags: 5, MaxOps: 7}: syscall.EINVAL,
	} {
		srq, err := pd.CreateSRQ(&verbs.SRQInitAttr{Mask: verbs.SRQInitType | verbs.SRQInitCQ | verbs.SRQInitTM, Type: verbs.SRQTypeTM, CQ: cq,
			SRQAttr: verbs.SRQAttr{MaxWR: 1}, TM: size})
		require.ErrorIs(t, err, want, "%+v", size)
		if err == nil {
			require.NoError(t, srq.Destroy())
		}
	}
	require.NoError(t, cq.Destroy())
	require.NoError(t, pd.Dealloc())
	require.NoError(t, d.Close())
}

func TestNoTagMatching(t *testing.T) {
	d, err := Open(Config{Fabric: NewFabric()}.withTM(hook.TM{MaxNumTags: -1}))
	require.NoError(t, err)
	require.Zero(t, d.Attr().TM)
	pd, err := d.AllocPD()
	require.NoError(t, err)
	_, err = pd.CreateSRQ(&verbs.SRQInitAttr{Mask: 0x1b, Type: verbs.SRQTypeTM, SRQAttr: verbs.SRQAttr{MaxWR: 1}})
	require.ErrorIs(t, err, syscall.EOPNOTSUPP)
	srq, err := pd.CreateSRQ(&verbs.SRQInitAttr{SRQAttr: verbs.SRQAttr{MaxWR: 1}})
	require.NoError(t, err)
	_, err = srq.PostSRQOps(&verbs.OpsWR{})
	require.ErrorIs(t, err, syscall.EOPNOTSUPP)
	require.NoError(t, srq.Destroy())
	require.NoError(t, pd.Dealloc())
	require.NoError(t, d.Close())
}

// TestTMConfigRefused: what a knob cannot mean is no device.
func TestTMConfigRefused(t *testing.T) {
	for _, tm := range []hook.TM{
		{MaxNumTags: tmMaxTags + 1}, {MaxOps: -1}, {MaxOps: tmMaxOps + 1}, {MTU: -1},
		{DelayOps: -1}, {DelayData: -1}, {DelayFIN: -1}, {DropSync: -1},
	} {
		_, err := Open(Config{Fabric: NewFabric()}.withTM(tm))
		require.ErrorIs(t, err, syscall.EINVAL, "%+v", tm)
	}
}

// TestKillQPAt: the message goes nowhere, and is not counted.
func TestKillQPAt(t *testing.T) {
	r := newKnobRig(t, hook.TM{KillQPAt: 2})
	r.untagged(3)
	require.True(t, r.eager(1, 8, false))
	require.True(t, r.eager(2, 8, false))
	require.Equal(t, verbs.QPSErr, r.q.State())
	require.Len(t, r.poll(), 1)
	require.EqualValues(t, 1, r.srq.tm.h)
	ev, ok := r.d.PollAsync()
	require.True(t, ok)
	require.Equal(t, verbs.EventQPFatal, ev.Type)
	require.ErrorIs(t, ev.Err, syscall.EIO)
}

// TestKillQPPart: a message that was matched ends with its queue pair, in its midst.
func TestKillQPPart(t *testing.T) {
	r := newKnobRig(t, hook.TM{KillQPPart: 1})
	r.must(verbs.WRTagAdd, tsync, 0, 0, 1)
	require.True(t, r.eager(1, 200, true))
	require.Equal(t, verbs.WCFlagTMMatch, r.one().Flags)
	require.Zero(t, r.d.cuts)
	r.rest(108)
	require.Equal(t, verbs.QPSErr, r.q.State())
	require.Equal(t, verbs.WCTMRndvIncomplete, r.one().Status)
	require.EqualValues(t, 1, r.d.cuts)
	ev, ok := r.d.PollAsync()
	require.True(t, ok)
	require.Equal(t, verbs.EventQPFatal, ev.Type)
	require.ErrorIs(t, ev.Err, syscall.EIO)
	require.False(t, r.q.partFails(), "nothing is under way")
	require.Equal(t, 1, r.srq.tm.parts)
}

// TestRNREvery: the message stays with the wire, and is taken when it is offered again.
func TestRNREvery(t *testing.T) {
	r := newKnobRig(t, hook.TM{RNREvery: 2})
	r.untagged(5)
	for i, want := range []bool{true, false, true, true, false, true, true} {
		require.Equal(t, want, r.eager(uint64(i), 8, false), i)
	}
	require.Len(t, r.poll(), 5)
}
