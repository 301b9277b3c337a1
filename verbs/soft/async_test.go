//go:build linux

package soft_test

import (
	"bytes"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/tagmatch/tagmatch/internal/testlevel"
	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/soft"
	"github.com/tagmatch/tagmatch/verbs/soft/softtest"
	"github.com/tagmatch/tagmatch/verbs/verbstest"
)

// pushRig is a receiver in asynchronous mode with one tagged receive, and a sender that only its
// polls move: each of them pushes a chunk.
type pushRig struct {
	t        *testing.T
	a, b     *soft.Device // sender, receiver
	owner    sync.Mutex   // of b
	acq, bcq verbs.CQ
	apd, bpd verbs.PD
	qa, qb   verbs.QP
	srq      verbs.SRQ
	amr, bmr verbs.MR
	fmr      verbs.MR
	src, dst []byte
	fin      []verbs.SGE
	free     []func() error
	wcs      []verbs.WC // of b
}

const pushSize = 4 << 20 // 16 chunks

func newPushRig(t *testing.T, cfg soft.Config) *pushRig {
	devs := shmOpener(cfg)(t, 2)
	r := &pushRig{t: t, a: devs[0].(*soft.Device), b: devs[1].(*soft.Device), src: make([]byte, pushSize), dst: make([]byte, pushSize)}
	for i := range r.src {
		r.src[i] = byte(i*7 + i>>9)
	}
	require.NoError(t, r.b.Async(&r.owner))
	r.owner.Lock()
	defer r.owner.Unlock()
	r.apd, r.bpd = must(r.a.AllocPD()), must(r.b.AllocPD())
	r.acq, r.bcq = must(r.a.CreateCQ(verbs.CQInitAttr{CQE: 64})), must(r.b.CreateCQ(verbs.CQInitAttr{CQE: 64, WCFlags: verbs.WCExWithTMInfo}))
	r.srq = must(r.bpd.CreateSRQ(&verbs.SRQInitAttr{Mask: verbs.SRQInitType | verbs.SRQInitPD | verbs.SRQInitCQ | verbs.SRQInitTM,
		Type: verbs.SRQTypeTM, CQ: r.bcq, SRQAttr: verbs.SRQAttr{MaxWR: 8, MaxSGE: 1}, TM: verbs.TMCap{MaxNumTags: 7, MaxOps: 16}}))
	r.qa = must(r.apd.CreateQP(&verbs.QPInitAttr{SendCQ: r.acq, RecvCQ: r.acq, Type: verbs.QPTRC,
		Cap: verbs.QPCap{MaxSendWR: 64, MaxRecvWR: 8, MaxSendSGE: 1, MaxRecvSGE: 1, MaxInlineData: 64}}))
	r.qb = must(r.bpd.CreateQP(&verbs.QPInitAttr{SendCQ: r.bcq, RecvCQ: r.bcq, SRQ: r.srq, Type: verbs.QPTRC}))
	soft.RaiseQP(t, r.qa, r.b, r.qb.Num(), 7)
	soft.RaiseQP(t, r.qb, r.a, r.qa.Num(), 7)
	fin := make([]byte, 64)
	r.fmr = must(r.apd.RegMR(fin, verbs.AccessLocalWrite))
	r.amr, r.bmr = must(r.apd.RegMR(r.src, verbs.AccessRemoteRead)), must(r.bpd.RegMR(r.dst, verbs.AccessLocalWrite))
	r.free = []func() error{r.apd.Dealloc, r.bpd.Dealloc, r.acq.Destroy, r.bcq.Destroy, r.srq.Destroy, r.qa.Destroy, r.qb.Destroy,
		r.amr.Dereg, r.bmr.Dereg, r.fmr.Dereg}
	t.Cleanup(r.close)
	r.fin = []verbs.SGE{{Data: fin, LKey: r.fmr.LKey()}}
	r.expect()
	r.b.PollingEnded()
	return r
}

// expect posts the tagged receive, and the sender's for the FIN. The caller holds owner.
func (r *pushRig) expect() {
	_ = must(r.qa.PostRecv(&verbs.RecvWR{WRID: 9, SGList: r.fin}))
	_ = must(r.srq.PostSRQOps(&verbs.OpsWR{WRID: 1, Opcode: verbs.WRTagAdd, Flags: verbs.OpsSignaled,
		Add: verbs.TagAdd{RecvWRID: 5, Tag: 3, Mask: ^uint64(0), SGList: []verbs.SGE{{Data: r.dst, LKey: r.bmr.LKey()}}}}))
}

// close frees what the test has not.
func (r *pushRig) close() {
	r.owner.Lock()
	for i := len(r.free) - 1; i >= 0; i-- {
		_ = r.free[i]()
	}
	r.owner.Unlock()
	require.NoError(r.t, r.a.Close())
	require.NoError(r.t, r.b.Close())
}

// request sends the rendezvous request.
func (r *pushRig) request() {
	m := make([]byte, verbs.TMHSize+verbs.RVHSize)
	verbs.TMH{Opcode: verbs.TMHRndv, Tag: 3, AppCtx: 8}.Put(m)
	verbs.RVH{VA: r.amr.Addr(), RKey: r.amr.RKey(), Len: pushSize}.Put(m[verbs.TMHSize:])
	_ = must(r.qa.PostSend(&verbs.SendWR{Opcode: verbs.WRSend, Flags: verbs.SendInline | verbs.SendSolicited, SGList: []verbs.SGE{{Data: m}}}))
}

// owned makes calls of the receiver's device, which succeed.
func (r *pushRig) owned(calls ...func() error) {
	r.owner.Lock()
	defer r.owner.Unlock()
	for _, f := range calls {
		require.NoError(r.t, f())
	}
}

// pollA polls the sender and returns what came.
func (r *pushRig) pollA() []verbs.WC {
	var wc [4]verbs.WC
	n := must(verbstest.Poll(r.acq, wc[:]))
	return wc[:n]
}

// pollB polls the receiver, for the first time in a while, and keeps what came.
func (r *pushRig) pollB() {
	r.owner.Lock()
	defer r.owner.Unlock()
	var wc [8]verbs.WC
	r.wcs = append(r.wcs, wc[:must(verbstest.Poll(r.bcq, wc[:]))]...)
}

// begin brings the push to its middle.
func (r *pushRig) begin() {
	r.request()
	for start := time.Now(); !bytes.Equal(r.dst[:1<<20], r.src[:1<<20]); {
		require.Less(r.t, time.Since(start), testlevel.Patience(20*time.Second), "nothing is pushed")
		r.pollA()
	}
	require.NotEqual(r.t, r.src[pushSize-1<<18:], r.dst[pushSize-1<<18:], "the push is over already")
}

// untilFIN polls the sender until the receiver's device has moved the message.
func (r *pushRig) untilFIN() {
	for start, fin := time.Now(), false; !fin; {
		require.Less(r.t, time.Since(start), testlevel.Patience(20*time.Second), "no FIN")
		for _, w := range r.pollA() {
			fin = fin || w.WRID == 9 && w.Status == verbs.WCSuccess && verbs.ParseTMH(w.Data).Opcode == verbs.TMHFin
		}
	}
}

// ended polls the receiver until the receive has ended.
func (r *pushRig) ended() verbs.WC {
	for start := time.Now(); ; {
		require.Less(r.t, time.Since(start), testlevel.Patience(20*time.Second), "the receive does not end")
		r.pollB()
		for _, w := range r.wcs {
			if w.WRID == 5 && w.Flags&verbs.WCFlagTMDataValid != 0 {
				return w
			}
		}
	}
}

// untouched checks that nothing writes to the receive's buffer any more, however often the sender
// polls.
func (r *pushRig) untouched() {
	r.owner.Lock()
	defer r.owner.Unlock()
	clear(r.dst)
	for range 200 {
		r.pollA()
	}
	require.Equal(r.t, make([]byte, pushSize), r.dst)
}

// TestAsyncMatches: nobody polls the receiver until all is done; its completions are those of a
// read.
func TestAsyncMatches(t *testing.T) {
	defer goleak.VerifyNone(t)
	r := newPushRig(t, soft.Config{})
	r.request()
	r.untilFIN()
	require.True(t, bytes.Equal(r.src, r.dst))
	require.EqualValues(t, 1, soft.Pushed(r.b))
	r.ended()
	require.Len(t, r.wcs, 3)
	require.Equal(t, verbs.WC{WRID: 1, Opcode: verbs.WCTMAdd}, r.wcs[0])
	require.Equal(t, verbs.WC{WRID: 5, Opcode: verbs.WCTMRecv, Flags: verbs.WCFlagTMMatch, QPNum: r.qb.Num(), Tag: 3, Priv: 8}, r.wcs[1])
	require.Equal(t, verbs.WC{WRID: 5, Opcode: verbs.WCTMRecv, Flags: verbs.WCFlagTMDataValid, QPNum: r.qb.Num(), ByteLen: pushSize}, r.wcs[2])
	r.untouched()
	r.close()
}

// TestAsyncReads: where pushing is not permitted the device's goroutine reads.
func TestAsyncReads(t *testing.T) {
	r := newPushRig(t, softtest.WithoutDirect(soft.Config{}))
	r.request()
	for start, same := time.Now(), false; !same; {
		require.Less(t, time.Since(start), testlevel.Patience(20*time.Second))
		r.pollA()
		r.owner.Lock()
		same = bytes.Equal(r.src[pushSize-1<<10:], r.dst[pushSize-1<<10:])
		r.owner.Unlock()
	}
	require.True(t, bytes.Equal(r.src, r.dst))
	require.Zero(t, soft.Pushed(r.b))
	require.Equal(t, verbs.WCSuccess, r.ended().Status)
}

// TestPollingEndedTakes: what arrived before PollingEnded is received by that call, while the
// device's goroutine cannot run.
func TestPollingEndedTakes(t *testing.T) {
	r := newPushRig(t, soft.Config{})
	r.connect()
	r.owner.Lock()
	defer r.owner.Unlock()
	r.send()
	r.acknowledged(r.b.PollingEnded)
}

// send sends a message that takes a receive of the shared receive queue, which is posted with it.
// Its completion is the acknowledgement.
func (r *pushRig) send() {
	_ = must(r.srq.PostSRQRecv(&verbs.RecvWR{SGList: []verbs.SGE{{Data: r.dst, LKey: r.bmr.LKey()}}}))
	_ = must(r.qa.PostSend(&verbs.SendWR{WRID: 4, Flags: verbs.SendInline | verbs.SendSignaled, Opcode: verbs.WRSend,
		SGList: []verbs.SGE{{Data: make([]byte, verbs.TMHSize)}}}))
}

// connect sends a first message, with the receiver's polls.
func (r *pushRig) connect() {
	r.owner.Lock()
	r.send()
	r.owner.Unlock()
	r.acknowledged(r.pollB)
	r.pollB()
	r.pollB()
}

// acknowledged polls the sender until the message of send is acknowledged, and calls between after
// each poll without that.
func (r *pushRig) acknowledged(between func()) {
	for start := time.Now(); len(r.pollA()) == 0; between() {
		require.Less(r.t, time.Since(start), testlevel.Patience(20*time.Second), "no acknowledgement")
	}
}

// TestPollingEndedJudges: a large message whose request PollingEnded has taken is moved by the
// device, again and again.
func TestPollingEndedJudges(t *testing.T) {
	r := newPushRig(t, soft.Config{})
	for range 16 {
		r.pollB()
		r.pollB()
		r.request() // it is in the ring, which is hot
		r.owner.Lock()
		r.b.PollingEnded()
		r.owner.Unlock()
		r.untilFIN()
		r.ended()
		r.wcs = nil
		r.owner.Lock()
		clear(r.dst)
		r.expect()
		r.owner.Unlock()
	}
}

// TestPushSenderCloses: the sender's device closes in the middle of a push.
func TestPushSenderCloses(t *testing.T) {
	r := newPushRig(t, soft.Config{})
	r.begin()
	for _, f := range []func() error{r.amr.Dereg, r.fmr.Dereg, r.qa.Destroy, r.acq.Destroy, r.apd.Dealloc, r.a.Close} {
		require.NoError(t, f())
	}
	w := r.ended()
	require.Equal(t, verbs.WCTMRndvIncomplete, w.Status)
	r.owner.Lock()
	defer r.owner.Unlock()
	require.Equal(t, verbs.QPSErr, r.qb.State())
}

// TestPushReceiverGoes: the receiver's queue pair goes in the middle of a push. It gets its buffer
// back with nobody writing to it, and the sender learns that its peer is gone.
func TestPushReceiverGoes(t *testing.T) {
	r := newPushRig(t, soft.Config{})
	r.begin()
	r.owned(r.qb.Destroy)
	require.Equal(t, verbs.WCTMRndvIncomplete, r.ended().Status)
	r.untouched()
	requireEvent(t, r, verbs.EventQPFatal)
}

// TestPushReceiverCloses: so does its device.
func TestPushReceiverCloses(t *testing.T) {
	r := newPushRig(t, soft.Config{})
	r.begin()
	r.owned(r.qb.Destroy, r.srq.Destroy, r.bcq.Destroy, r.bmr.Dereg, r.bpd.Dealloc)
	require.NoError(t, r.b.Close())
	r.untouched()
	requireEvent(t, r, verbs.EventQPFatal)
}

// TestPushDeregistered: what the sender deregisters in the middle is not received.
func TestPushDeregistered(t *testing.T) {
	r := newPushRig(t, soft.Config{})
	r.begin()
	require.NoError(t, r.amr.Dereg())
	for range 10 {
		r.pollA()
	}
	require.NotEqual(t, verbs.WCSuccess, r.ended().Status)
}

// TestPushReceiverDeregisters: what the receiver deregisters in the middle is written to no more.
func TestPushReceiverDeregisters(t *testing.T) {
	r := newPushRig(t, soft.Config{})
	r.begin()
	r.owned(r.bmr.Dereg)
	r.untouched()
	require.Equal(t, verbs.WCTMRndvIncomplete, r.ended().Status)
}

// TestPushReceiverDeregistersLate: what it deregisters after the last byte, and before it hears of
// that, is not received.
func TestPushReceiverDeregistersLate(t *testing.T) {
	r := newPushRig(t, soft.Config{})
	r.begin()
	r.owned(func() error {
		for start := time.Now(); !bytes.Equal(r.dst, r.src); r.pollA() {
			require.Less(t, time.Since(start), testlevel.Patience(20*time.Second), "the push does not end")
		}
		r.pollA()
		return r.bmr.Dereg()
	})
	require.Equal(t, verbs.WCTMRndvIncomplete, r.ended().Status)
}

func requireEvent(t *testing.T, r *pushRig, want verbs.AsyncEventType) {
	t.Helper()
	for start := time.Now(); ; r.pollA() {
		require.Less(t, time.Since(start), testlevel.Patience(20*time.Second), "no event")
		if ev, ok := r.a.PollAsync(); ok {
			require.Equal(t, want, ev.Type)
			require.Equal(t, verbs.QPSErr, r.qa.State())
			return
		}
	}
}

// TestAsyncClose closes devices whose goroutine sleeps, runs, or waits for its turn.
func TestAsyncClose(t *testing.T) {
	defer goleak.VerifyNone(t)
	for i := range 50 {
		d, err := soft.Open(soft.Config{Secret: []byte("secret")})
		require.NoError(t, err)
		var owner sync.Mutex
		require.NoError(t, d.Async(&owner))
		require.Error(t, d.Async(&owner))
		owner.Lock()
		ch := must(d.CreateCompChannel())
		owner.Unlock()
		waiter := make(chan error)
		go func() {
			for {
				if err := ch.Wait(); err != nil {
					waiter <- err
					return
				}
			}
		}()
		switch i % 3 {
		case 0:
			time.Sleep(time.Millisecond) // it sleeps by now, or it does not: both must do
		case 1:
			owner.Lock()
			time.AfterFunc(time.Millisecond, owner.Unlock)
		}
		require.NoError(t, d.Close())
		require.Error(t, <-waiter)
		require.NoError(t, d.Close())
	}
}
