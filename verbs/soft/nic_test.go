package soft

import (
	"errors"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/hook"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/loop"
	"github.com/tagmatch/tagmatch/verbs/verbstest"
)

// polls polls device i n times, and returns what has completed.
func (r *rig) polls(t *testing.T, i, n int) (got []verbs.WC) {
	t.Helper()
	for range n {
		got = append(got, r.poll(t, i)...)
	}
	return got
}

func (r *rig) noEvent(t *testing.T, i int) {
	t.Helper()
	ev, ok := r.d[i].PollAsync()
	require.False(t, ok, "%+v", ev)
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

var toErr = &verbs.QPAttr{State: verbs.QPSErr}

func TestHabitReads(t *testing.T) {
	r := newHabitRig(t, NewFabric(), &hook.Habits{NoReadFaults: true})
	require.False(t, r.d[0].Attr().ReadFaults)
	init := &verbs.QPInitAttr{SendCQ: r.cq[0], RecvCQ: r.cq[0], Type: verbs.QPTRC, ReadFaults: true}
	q, err := r.q[0].(*queuePair).pd.CreateQP(init)
	require.NoError(t, err)
	require.False(t, init.ReadFaults, "it is not granted")
	require.NoError(t, q.Destroy())
}

func TestHabitState(t *testing.T) {
	f := NewFabric()
	r := newHabitRig(t, f, &hook.Habits{StaleState: true})
	loop.Break(f, r.d[0].self.ID, r.d[1].self.ID)
	r.polls(t, 0, 2)
	require.Equal(t, verbs.QPSRTS, r.q[0].State())
	a, _, err := r.q[0].Query()
	require.NoError(t, err)
	require.Equal(t, verbs.QPSErr, a.State)
	require.NoError(t, r.q[0].Modify(toErr, verbs.QPAttrState))
	require.Equal(t, verbs.QPSErr, r.q[0].State())
}

func TestHabitEvents(t *testing.T) {
	f := NewFabric()
	r := newHabitRig(t, f, &hook.Habits{NoEvents: true})
	r.post(t, 0, 1)
	require.NoError(t, r.q[1].Modify(toErr, verbs.QPAttrState))
	r.polls(t, 1, 3)
	require.Equal(t, verbs.WCRetryExcErr, r.polls(t, 0, 3)[0].Status)
	r.noEvent(t, 0)
	r.noEvent(t, 1)

	r = newHabitRig(t, f, &hook.Habits{NoEvents: true})
	loop.Break(f, r.d[0].self.ID, r.d[1].self.ID)
	for i := range r.d {
		r.polls(t, i, 2)
		ev, ok := r.d[i].PollAsync()
		require.True(t, ok, "the end of the link is told")
		require.Equal(t, verbs.EventQPFatal, ev.Type)
		require.Error(t, ev.Err)
	}
}

// TestHabitSilence: whether the peer's queue pair has failed, was reset or destroyed, and whatever
// the request: it ends after some polls, and nothing says so before.
func TestHabitSilence(t *testing.T) {
	const polls = 10
	buf := make([]byte, 8)
	for name, leave := range map[string]func(r *rig) error{
		"error": func(r *rig) error { return r.q[1].Modify(toErr, verbs.QPAttrState) },
		"reset": func(r *rig) error { return r.q[1].Modify(&verbs.QPAttr{}, verbs.QPAttrState) },
		"destroyed": func(r *rig) (err error) {
			old := r.q[1].(*queuePair)
			r.q[1], err = old.pd.CreateQP(&old.init)
			return errors.Join(err, old.Destroy())
		},
	} {
		for _, op := range []verbs.SendOpcode{verbs.WRSend, verbs.WRRDMAWrite, verbs.WRRDMARead} {
			for _, before := range []bool{false, true} {
				t.Run(name, func(t *testing.T) {
					r := newHabitRig(t, NewFabric(), &hook.Habits{Silence: polls})
					mr := must(r.q[0].(*queuePair).pd.RegMR(buf, verbs.AccessLocalWrite))
					far := must(r.q[1].(*queuePair).pd.RegMR(buf, accessAll))
					r.recv(t, 5)
					_, err := r.q[0].PostSend(&verbs.SendWR{WRID: 4, Opcode: verbs.WRSend}) // is executed
					require.NoError(t, err)
					r.polls(t, 1, 2)
					post := func() {
						_, err := r.q[0].PostSend(&verbs.SendWR{WRID: 1, Opcode: op, SGList: []verbs.SGE{{Data: buf, LKey: mr.LKey()}},
							RemoteAddr: far.Addr(), RKey: far.RKey()})
						require.NoError(t, err)
					}
					if before {
						post()
					}
					require.NoError(t, leave(r))
					for range 3 * polls {
						r.poll(t, 1)
						if !before {
							require.Empty(t, r.poll(t, 0))
							require.Equal(t, verbs.QPSRTS, r.q[0].State())
						}
					}
					if !before {
						post()
						r.polls(t, 1, 3)
					}
					require.Empty(t, r.polls(t, 0, polls))
					got := r.polls(t, 0, 3*polls)
					require.NotEmpty(t, got)
					require.Equal(t, verbs.WCRetryExcErr, got[0].Status)
					r.noEvent(t, 0)
					require.NoError(t, mr.Dereg())
					require.NoError(t, far.Dereg())
				})
			}
		}
	}
}

func TestHabitLateFlush(t *testing.T) {
	const polls = 5
	r := newHabitRig(t, NewFabric(), &hook.Habits{LateFlush: polls})
	r.post(t, 1, 1)
	r.recv(t, 2)
	require.NoError(t, r.q[1].Modify(toErr, verbs.QPAttrState))
	r.post(t, 1, 3)
	r.recv(t, 4)
	require.Empty(t, r.polls(t, 1, polls))
	got := r.polls(t, 1, 2)
	require.Len(t, got, 4)
	for i, wrid := range []uint64{1, 3, 2, 4} {
		require.Equal(t, wrid, got[i].WRID)
		require.Equal(t, verbs.WCWRFlushErr, got[i].Status)
	}
	r.post(t, 1, 5)
	require.Len(t, r.polls(t, 1, 1), 1, "later requests at once")
}

func TestHabitEarly(t *testing.T) {
	f := loop.NewFabric(loop.Options{Step: time.Nanosecond})
	r := newHabitRig(t, f, &hook.Habits{Early: true})
	start := r.d[0].now()
	require.NoError(t, r.q[1].Modify(&verbs.QPAttr{}, verbs.QPAttrState))
	pd := r.q[1].(*queuePair).pd
	init := &verbs.QPInitAttr{SendCQ: r.cq[1], RecvCQ: r.cq[1], Type: verbs.QPTRC, Cap: verbs.QPCap{MaxSendWR: 16, MaxRecvWR: 16}}
	late := must(pd.CreateQP(init))
	mine := must(r.q[0].(*queuePair).pd.CreateQP(&verbs.QPInitAttr{SendCQ: r.cq[0], RecvCQ: r.cq[0], Type: verbs.QPTRC, Cap: init.Cap}))
	RaiseQP(t, mine, r.d[1], late.Num(), 7)
	_, err := mine.PostSend(&verbs.SendWR{WRID: 7, Opcode: verbs.WRSend, Flags: verbs.SendSignaled})
	require.NoError(t, err)
	require.Empty(t, r.polls(t, 1, 5))
	require.EqualValues(t, 1, r.d[1].nic.tooEarly())
	require.GreaterOrEqual(t, r.d[0].now()-start, int64(time.Second))
	RaiseQP(t, late, r.d[0], mine.Num(), 7)
	_, err = late.PostRecv(&verbs.RecvWR{WRID: 8})
	require.NoError(t, err)
	require.Len(t, r.polls(t, 1, 5), 1)
	require.Len(t, r.polls(t, 0, 5), 1)
	require.EqualValues(t, 1, r.d[1].nic.tooEarly())
	require.NoError(t, late.Destroy())
	require.NoError(t, mine.Destroy())
}

func TestHabitSlow(t *testing.T) {
	f := loop.NewFabric(loop.Options{Step: time.Nanosecond})
	r := newHabitRig(t, f, &hook.Habits{Slow: time.Millisecond})
	// Each end has made a completion queue and a queue pair, and modified that three times.
	require.Less(t, r.d[0].now()-int64(10*time.Millisecond), int64(time.Millisecond))
	require.GreaterOrEqual(t, r.d[0].now(), int64(10*time.Millisecond))
}

func TestHabitMemory(t *testing.T) {
	r := newHabitRig(t, NewFabric(), &hook.Habits{NoLending: true, MaxInline: 128})
	require.Equal(t, 128, r.d[0].Attr().MaxInline)
	pd := r.q[0].(*queuePair).pd
	_, err := pd.CreateQP(&verbs.QPInitAttr{SendCQ: r.cq[0], RecvCQ: r.cq[0], Type: verbs.QPTRC, Cap: verbs.QPCap{MaxInlineData: 129}})
	require.ErrorIs(t, err, syscall.EINVAL)

	r.recv(t, 1)
	_, err = r.q[0].PostSend(&verbs.SendWR{Opcode: verbs.WRSend, Flags: verbs.SendInline})
	require.NoError(t, err)
	got := r.polls(t, 1, 2)
	require.Len(t, got, 1)
	require.Nil(t, got[0].Data)
}

// TestHabitTags: of the receives whose message is cut short by the end of its queue pair, every
// second one ends, and the others are given back by RESET.
func TestHabitTags(t *testing.T) {
	h := hook.Habits{Tags: true}
	f := NewFabric()
	d := must(Open(Config{Fabric: f, habits: &h}))
	pd := must(d.AllocPD())
	cq := must(d.CreateCQ(verbs.CQInitAttr{CQE: 4096, WCFlags: verbs.WCExWithTMInfo}))
	const tags = 2
	srq := must(pd.CreateSRQ(&verbs.SRQInitAttr{Mask: verbs.SRQInitType | verbs.SRQInitCQ | verbs.SRQInitTM, Type: verbs.SRQTypeTM, CQ: cq,
		SRQAttr: verbs.SRQAttr{MaxWR: 64}, TM: verbs.TMCap{MaxNumTags: tags, MaxOps: 256}}))
	buf := make([]byte, 64<<10)
	mr := must(pd.RegMR(buf, accessAll))
	cap := verbs.QPCap{MaxSendWR: 8, MaxSendSGE: 1}
	qp := must(pd.CreateQP(&verbs.QPInitAttr{SendCQ: cq, RecvCQ: cq, SRQ: srq, Type: verbs.QPTRC, Cap: cap}))
	var got verbstest.Collector
	poll := func() []verbs.WC {
		var wcs [16]verbs.WC
		got.WCs = wcs[:0]
		_ = must(cq.Drain(&got, len(wcs)))
		return got.WCs
	}
	handled := uint32(0)
	for round := range uint64(10) {
		RaiseQP(t, qp, d, qp.Num(), 7)
		_ = must(srq.PostSRQOps(&verbs.OpsWR{WRID: 1, Opcode: verbs.WRTagAdd, Flags: verbs.OpsTMSync, UnexpectedCnt: handled,
			Add: verbs.TagAdd{RecvWRID: 100 + round, SGList: []verbs.SGE{{Data: buf, LKey: mr.LKey()}}, Tag: 5, Mask: ^uint64(0)}}))
		msg := make([]byte, 40<<10)
		verbs.TMH{Opcode: verbs.TMHEager, Tag: 5}.Put(msg)
		wmr := must(pd.RegMR(msg, 0))
		_ = must(qp.PostSend(&verbs.SendWR{WRID: 2, Opcode: verbs.WRSend, SGList: []verbs.SGE{{Data: msg, LKey: wmr.LKey()}}}))
		d.wires[len(d.wires)-1].Poll(1) // the first packet
		d.wires[len(d.wires)-1].Poll(1)
		require.NoError(t, qp.Modify(toErr, verbs.QPAttrState))
		match, ends := 0, 0
		for range 5 {
			for _, wc := range poll() {
				switch {
				case wc.WRID != 100+round:
				case wc.Status == verbs.WCSuccess:
					require.Equal(t, verbs.WCFlagTMMatch, wc.Flags)
					require.Zero(t, wc.QPNum)
					match++
				default:
					require.Equal(t, verbs.WCTMRndvIncomplete, wc.Status)
					require.Equal(t, verbs.WCFlagTMMatch|verbs.WCFlagTMDataValid, wc.Flags)
					require.Zero(t, wc.QPNum)
					ends++
				}
			}
		}
		require.Equal(t, 1, match)
		require.EqualValues(t, (round+1)%2, ends)
		require.NoError(t, qp.Modify(&verbs.QPAttr{}, verbs.QPAttrState))
		require.Empty(t, d.nic.owed)
		require.NoError(t, wmr.Dereg())
	}
	for _, free := range []func() error{qp.Destroy, srq.Destroy, mr.Dereg, cq.Destroy, pd.Dealloc, d.Close} {
		require.NoError(t, free())
	}
}
