//go:build invariants

package soft

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/invariant"
	"github.com/tagmatch/tagmatch/internal/invariant/invarianttest"
	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/verbstest"
)

// checkRig is a device, made for one test, whose state the test spoils.
type checkRig struct {
	t    *testing.T
	d    *Device
	pd   verbs.PD
	cq   *compQueue
	buf  []byte
	mr   verbs.MR
	q    *queuePair // connected to itself
	list []verbs.SGE
}

func newCheckRig(t *testing.T) *checkRig {
	d, err := Open(Config{Fabric: NewFabric()})
	require.NoError(t, err)
	pd, err := d.AllocPD()
	require.NoError(t, err)
	cq, err := d.CreateCQ(verbs.CQInitAttr{CQE: 64})
	require.NoError(t, err)
	r := &checkRig{t: t, d: d, pd: pd, cq: cq.(*compQueue), buf: make([]byte, 256)}
	r.mr, err = pd.RegMR(r.buf, accessAll)
	require.NoError(t, err)
	r.list = []verbs.SGE{{Data: r.buf, LKey: r.mr.LKey()}}
	q, err := pd.CreateQP(&verbs.QPInitAttr{SendCQ: cq, RecvCQ: cq, Type: verbs.QPTRC,
		Cap: verbs.QPCap{MaxSendWR: 8, MaxRecvWR: 8, MaxInlineData: 64}})
	require.NoError(t, err)
	r.q = q.(*queuePair)
	RaiseQP(t, q, d, q.Num(), 7)
	return r
}

func (r *checkRig) recv(id uint64) {
	_, err := r.q.PostRecv(&verbs.RecvWR{WRID: id, SGList: r.list})
	require.NoError(r.t, err)
}

func (r *checkRig) send(data []byte, flags verbs.SendFlags) {
	_, err := r.q.PostSend(&verbs.SendWR{Opcode: verbs.WRSend, Flags: flags | verbs.SendInline, SGList: []verbs.SGE{{Data: data}}})
	require.NoError(r.t, err)
}

func (r *checkRig) poll() []verbs.WC {
	wc := make([]verbs.WC, 16)
	n, err := verbstest.Poll(r.cq, wc)
	require.NoError(r.t, err)
	return wc[:n]
}

// TestCheckOwner: two goroutines in one device, which is what a program without a lock does sooner
// or later.
func TestCheckOwner(t *testing.T) {
	r := newCheckRig(t)
	leave := r.d.enter("post_send")
	said := make(chan string)
	go func() { said <- invarianttest.Violates(t, "owner", func() { r.poll() }) }()
	text := <-said
	require.Contains(t, text, "poll_cq while post_send is under way")
	require.Contains(t, text, "hold one lock around all calls")
	leave()
	require.NotPanics(t, func() { r.poll() })
}

type knownMutex struct{ invariant.Mutex }

// TestCheckAsyncOwner: in asynchronous mode the owner's lock is needed.
func TestCheckAsyncOwner(t *testing.T) {
	r, owner := newCheckRig(t), new(knownMutex)
	require.NoError(t, r.d.Async(owner))
	text := invarianttest.Violates(t, "owner", func() { r.d.PollAsync() })
	require.Contains(t, text, "get_async_event")
	require.Contains(t, text, "that Device.Async was given")
	owner.Lock()
	require.NotPanics(t, func() { r.poll() })
	require.NoError(t, r.q.Destroy())
	owner.Unlock()
	r.d.async.close()
}

// TestCheckHeld: a sync.Mutex tells only that nobody holds it. Nobody else may use the one of this
// test: a device's goroutine that holds its own would take the call without it for a second one at
// once, and panic itself.
func TestCheckHeld(t *testing.T) {
	var owner sync.Mutex
	require.Contains(t, invarianttest.Violates(t, "owner", func() { requireHeld(&owner, "get_async_event") }), "which nobody holds")
	owner.Lock()
	require.NotPanics(t, func() { requireHeld(&owner, "get_async_event") })
	owner.Unlock()
}

// keeper keeps the payload that it is lent.
type keeper struct {
	data []byte
	text string
}

func (k *keeper) Complete(wc *verbs.WC) bool {
	if wc.Data != nil {
		k.data, k.text = wc.Data, string(wc.Data)
	}
	return false
}

// TestCheckLent: what a handler is lent is gone after the call.
func TestCheckLent(t *testing.T) {
	r := newCheckRig(t)
	r.recv(1)
	r.send([]byte("hello"), 0)
	var k keeper
	for k.data == nil {
		_, err := r.cq.Drain(&k, 16)
		require.NoError(t, err)
	}
	require.Equal(t, "hello", k.text)
	require.NotPanics(t, func() { invariant.RequirePoison(k.data, "it") })
}

func TestCheckPool(t *testing.T) {
	var p bufPool
	b := p.get(100)
	p.put(b)
	require.NotPanics(t, func() { b = p.get(70) })
	p.put(b)
	b[3] = 7
	invarianttest.Violates(t, "poison", func() { p.get(80) })
}

// TestCheckLateWrite is V4: a destination is written to for a request under way, inside its region,
// and for no other.
func TestCheckLateWrite(t *testing.T) {
	r := newCheckRig(t)
	var mem [maxSGE]sge
	list := sgesOf(&mem, r.list)
	invarianttest.Violates(t, "V4", func() { r.q.scatter(list, 0, []byte("late")) })
	r.recv(1)
	require.NotPanics(t, func() { r.q.scatter(list, 0, []byte("fine")) })
	require.NotPanics(t, func() { (*fromWire)(r.d).Places(r.buf[10:20]) })
	r.d.regions.Remove(r.mr.LKey())
	invarianttest.Violates(t, "V4", func() { r.d.writes(list, r.buf[:9]) })
	invarianttest.Violates(t, "V4", func() { r.d.peerWrites(r.mr.RKey(), r.buf[:1], verbs.AccessRemoteWrite) })
	r.q.rq.checkDone(1)
	invarianttest.Violates(t, "once", func() { r.d.inv.closes(list) })
	invarianttest.Violates(t, "V4", func() { (*fromWire)(r.d).Places(r.buf[10:20]) })
	invarianttest.Violates(t, "V4", func() { r.d.writes(list, make([]byte, 3)) })
}

// TestCheckPush is V4 for a peer that writes by itself.
func TestCheckPush(t *testing.T) {
	r := newCheckRig(t)
	r.recv(1)
	r.d.inv.pushes[sgeOf(&r.list[0]).addr]++
	require.Contains(t, invarianttest.Violates(t, "V4", func() { r.q.rq.checkDone(1) }), "peer may still write")
}

// TestCheckSends: a request completes once, and its slot is free once.
func TestCheckSends(t *testing.T) {
	r := newCheckRig(t)
	r.recv(1)
	r.send(nil, verbs.SendSignaled)
	r.q.sent, r.q.acked = 1, 1
	again := func() {
		r.q.done = 0
		r.q.retire()
	}
	require.NotPanics(t, again)
	invarianttest.Violates(t, "once", again)

	r = newCheckRig(t)
	r.send(nil, verbs.SendSignaled)
	require.Contains(t, invarianttest.Violates(t, "order", func() { r.q.reclaim(1) }), "before its completion")
	r.q.checkEnded(0, true, verbs.WCSuccess)
	r.q.reclaimed = 0
	require.NotPanics(t, func() { r.q.reclaim(1) })
	r.q.reclaimed = 0
	invarianttest.Violates(t, "once", func() { r.q.reclaim(1) })

	r = newCheckRig(t)
	r.send(nil, 0)
	invarianttest.Violates(t, "once", func() { r.q.checkEnded(0, true, verbs.WCSuccess) })
	r.q.sent = r.q.posted + 1
	invarianttest.Violates(t, "order", r.q.checkCursors)
	r.q.sent = r.q.posted
	r.q.shares = 1
	invarianttest.Violates(t, "order", r.q.checkCursors)
	r.q.shares = 0
	r.q.checkCursors()

	r = newCheckRig(t)
	r.send(nil, verbs.SendSignaled)
	r.send(nil, verbs.SendSignaled)
	invarianttest.Violates(t, "once", func() { r.q.checkEnded(2, true, verbs.WCSuccess) }) // was not posted
	require.Contains(t, invarianttest.Violates(t, "once", func() { r.q.checkEnded(1, false, verbs.WCSuccess) }), "without a completion")
	r.q.checkEnded(1, true, verbs.WCSuccess)
	require.Contains(t, invarianttest.Violates(t, "order", func() { r.q.checkEnded(0, true, verbs.WCSuccess) }), "completes after request 1")
	r.q.posted--
	require.Contains(t, invarianttest.Violates(t, "once", func() { r.q.checkPosted(nil) }), "takes a slot")
}

// TestCheckRecvs: a receive completes as often as it was posted.
func TestCheckRecvs(t *testing.T) {
	r := newCheckRig(t)
	r.recv(5)
	r.recv(5)
	r.q.rq.checkDone(5)
	r.q.rq.checkDone(5)
	invarianttest.Violates(t, "once", func() { r.q.rq.checkDone(5) })
	r.recv(6)
	r.q.rq.checkCleared()
	invarianttest.Violates(t, "once", func() { r.q.rq.checkDone(6) })
	r.recv(7)
	r.q.rq.head = r.q.rq.tail + 1 // one was taken that was not posted
	invarianttest.Violates(t, "order", func() { r.q.rq.checkDone(7) })
}

// TestCheckFifo: an empty queue gives nothing.
func TestCheckFifo(t *testing.T) {
	var f fifo[int]
	f.push(1)
	f.pop()
	invarianttest.Violates(t, "order", f.pop)
}
