package soft

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/hook"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/wire"
	"github.com/tagmatch/tagmatch/verbs/verbstest"
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
	t.Cleanup(r.dereg)
	qi, err := pd.CreateQP(&verbs.QPInitAttr{SendCQ: r.cq, RecvCQ: r.cq, SRQ: r.srq, Type: verbs.QPTRC})
	require.NoError(t, err)
	r.q = qi.(*queuePair)
	r.q.state, r.q.attr.PathMTU = verbs.QPSRTR, verbs.MTU1024
	return r
}

func (r *knobRig) sg() []verbs.SGE { return []verbs.SGE{{Data: r.buf, LKey: r.mr.LKey()}} }

// dereg ends the registration of the rig's memory, unless that has been done.
func (r *knobRig) dereg() {
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
	return r.q.recvTM(nil, &h, msg)
}

// rest hands the last packet of the message under way, with the n bytes that are missing, to the
// device.
func (r *knobRig) rest(n int) {
	r.t.Helper()
	h := wire.Header{Op: wire.OpSend, Flags: wire.FlagLast, Status: 7, PSN: r.q.rx.psn, Length: uint32(n), Total: r.q.rx.total}
	require.True(r.t, r.q.recvTM(nil, &h, make([]byte, n)))
}

func (r *knobRig) poll() []verbs.WC {
	r.t.Helper()
	wc := make([]verbs.WC, 64)
	n, err := verbstest.Poll(r.cq, wc)
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
	sig   = verbs.OpsSignaled
	tsync = verbs.OpsTMSync
)

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
		require.Zero(t, r.srq.tm.list.H())
	}
}

// TestRegionGoneInMidMessage: a message whose buffer is deregistered between its packets ends at
// the next of them, once and with an error, as does the queue pair. It is not counted if it was not
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
			require.EqualValues(t, 1, r.srq.tm.list.H())
		}
		r.dereg()
		r.rest(108)
		require.Equal(t, verbs.WC{WRID: id, Status: verbs.WCLocProtErr, Opcode: verbs.WCTMRecv, QPNum: r.q.Num()}, r.one())
		require.Equal(t, verbs.QPSErr, r.q.State())
		require.Equal(t, response{op: wire.OpNak, psn: r.q.expect, status: uint8(verbs.WCRemOpErr)}, *r.q.resp.front())
		require.Zero(t, r.srq.tm.list.H())
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
	require.EqualValues(t, 1, r.srq.tm.list.H())
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
	require.False(t, r.srq.tm.faults.killsAt(r.q, nil, nil), "nothing is under way")
	require.Equal(t, 1, r.srq.tm.faults.parts)
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
