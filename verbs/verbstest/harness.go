package verbstest

import (
	"errors"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/tagmatch/tagmatch/internal/testlevel"
	"github.com/tagmatch/tagmatch/verbs"
)

// Opener opens n devices that can reach each other; the test's cleanup closes them, with their
// objects destroyed. A device with a method LetGo(f func()) is asynchronous and works while f runs;
// the suite calls it before each poll and around Wait.
type Opener func(t *testing.T, n int) []verbs.Device

// letter is an asynchronous device, which works only while its owner, the suite, lets it.
type letter interface {
	// LetGo runs f while the device may work.
	LetGo(f func())
}

// letGo runs f while the device, if asynchronous, may work.
func letGo(d verbs.Device, f func()) {
	if l, ok := d.(letter); ok {
		l.LetGo(f)
	} else {
		f()
	}
}

// env is the devices of one subtest.
type env struct {
	t     *testing.T
	opts  TagOptions // of tests that look at them
	nodes []*node
}

// node is a device with the usual objects on it.
type node struct {
	e    *env
	dev  verbs.Device
	pd   verbs.PD
	cq   verbs.CQ
	got  []verbs.WC // polled, not yet checked
	evs  []verbs.AsyncEvent
	told []verbs.Told
	deaf bool // what is told is not polled
	wc   [16]verbs.WC
	qps  map[verbs.QP]bool // not destroyed
	free []func() error    // destroys objects, last first
	dead bool
}

var patience = testlevel.Patience(20 * time.Second)

func newEnv(t *testing.T, open Opener, n int) *env {
	t.Helper()
	e := &env{t: t}
	for _, d := range open(t, n) {
		nd := &node{e: e, dev: d, qps: map[verbs.QP]bool{}}
		var err error
		nd.pd, err = d.AllocPD()
		e.ok(err)
		nd.onFree(nd.pd.Dealloc)
		nd.cq = nd.newCQ(1024)
		e.nodes = append(e.nodes, nd)
	}
	t.Cleanup(e.cleanup)
	return e
}

func (e *env) ok(err error) {
	if err != nil {
		e.t.Helper()
		e.t.Fatalf("unexpected error: %v", err)
	}
}

// query returns the attributes of a queue pair, and those of its creation.
func (e *env) query(qp verbs.QP) (verbs.QPAttr, verbs.QPInitAttr) {
	e.t.Helper()
	attr, init, err := qp.Query()
	e.ok(err)
	return attr, init
}

func (e *env) errno(err error, want syscall.Errno) {
	e.t.Helper()
	var ve *verbs.Error
	if !errors.As(err, &ve) || !errors.Is(err, want) {
		e.t.Fatalf("error is %v, want a *verbs.Error with %v", err, want)
	}
}

func (e *env) cleanup() {
	for _, n := range e.nodes {
		for i := len(n.free) - 1; i >= 0; i-- {
			if err := n.free[i](); err != nil {
				e.t.Errorf("cleaning up: %v", err)
			}
		}
	}
}

func (n *node) onFree(f func() error) { n.free = append(n.free, f) }

func (n *node) newCQ(size int) verbs.CQ {
	n.e.t.Helper()
	cq, err := n.dev.CreateCQ(verbs.CQInitAttr{CQE: size})
	n.e.ok(err)
	n.onFree(cq.Destroy)
	return cq
}

// sleepyCQ is a CQ with a channel of its own to sleep in.
func (n *node) sleepyCQ(e *env) (verbs.CompChannel, verbs.CQ) {
	ch, err := n.dev.CreateCompChannel()
	e.ok(err)
	cq, err := n.dev.CreateCQ(verbs.CQInitAttr{CQE: 64, Channel: ch})
	e.ok(err)
	n.onFree(ch.Close)
	n.onFree(cq.Destroy)
	return ch, cq
}

func (n *node) newSRQ(size uint32) verbs.SRQ {
	n.e.t.Helper()
	srq, err := n.pd.CreateSRQ(&verbs.SRQInitAttr{SRQAttr: verbs.SRQAttr{MaxWR: size, MaxSGE: 2}})
	n.e.ok(err)
	n.onFree(srq.Destroy)
	return srq
}

// mem registers a buffer of n bytes with all rights.
func (n *node) mem(size int) (verbs.MR, []byte) {
	n.e.t.Helper()
	buf := make([]byte, size)
	return n.reg(buf, verbs.AccessLocalWrite|verbs.AccessRemoteRead|verbs.AccessRemoteWrite|verbs.AccessRemoteAtomic), buf
}

func (n *node) reg(buf []byte, access verbs.AccessFlags) verbs.MR {
	n.e.t.Helper()
	mr, err := n.pd.RegMR(buf, access)
	n.e.ok(err)
	key := mr.LKey()
	n.onFree(func() error {
		if mr.LKey() != key {
			return nil // the test has deregistered it
		}
		return mr.Dereg()
	})
	return mr
}

// qpConf is the difference of a queue pair from the default one.
type qpConf struct {
	srq    verbs.SRQ
	cap    verbs.QPCap
	rnr    uint8 // retries; the default is 7, for ever
	rnrSet bool
	access verbs.AccessFlags
	cq     verbs.CQ
	sigAll bool
	faults bool
}

func (n *node) newQP(c qpConf) verbs.QP {
	n.e.t.Helper()
	if c.cap == (verbs.QPCap{}) {
		c.cap = verbs.QPCap{MaxSendWR: 64, MaxRecvWR: 64, MaxSendSGE: 3, MaxRecvSGE: 2, MaxInlineData: maxInline}
	}
	if c.cq == nil {
		c.cq = n.cq
	}
	qp, err := n.pd.CreateQP(&verbs.QPInitAttr{SendCQ: c.cq, RecvCQ: c.cq, SRQ: c.srq, Cap: c.cap, Type: verbs.QPTRC, SQSigAll: c.sigAll,
		ReadFaults: c.faults})
	n.e.ok(err)
	n.qps[qp] = true
	n.onFree(func() error {
		if n.qps[qp] {
			return qp.Destroy()
		}
		return nil
	})
	return qp
}

// destroy destroys a queue pair before the end of the test.
func (n *node) destroy(qp verbs.QP) {
	n.e.t.Helper()
	delete(n.qps, qp)
	n.e.ok(qp.Destroy())
}

// maxInline is the largest inline payload of the suite's queue pairs, bytes.
const maxInline = 128

const allAccess = verbs.AccessLocalWrite | verbs.AccessRemoteRead | verbs.AccessRemoteWrite | verbs.AccessRemoteAtomic

func initAttr(access verbs.AccessFlags) (*verbs.QPAttr, verbs.QPAttrMask) {
	return &verbs.QPAttr{State: verbs.QPSInit, Port: 1, AccessFlags: access}, verbs.QPMaskInit
}

func rtrAttr(peer verbs.Device, num uint32) (*verbs.QPAttr, verbs.QPAttrMask) {
	return &verbs.QPAttr{State: verbs.QPSRTR, AV: verbs.AddressVector{Address: peer.Address()}, PathMTU: verbs.MTU1024, DestQPN: num,
		RQPSN: 5, MaxDestRdAtomic: 16, MinRNRTimer: 14}, verbs.QPMaskRTR
}

// rtsAttr: to rxe 7 retries are retries for ever.
func rtsAttr(rnr uint8) (*verbs.QPAttr, verbs.QPAttrMask) {
	return &verbs.QPAttr{State: verbs.QPSRTS, SQPSN: 5, MaxRdAtomic: 16, RetryCnt: 6, RNRRetry: rnr, Timeout: 17}, verbs.QPMaskRTS
}

// raise brings a QP to RTS.
func (n *node) raise(qp verbs.QP, peer verbs.Device, num uint32, c qpConf) {
	n.e.t.Helper()
	access := c.access
	if access == 0 {
		access = allAccess
	}
	rnr := uint8(7)
	if c.rnrSet {
		rnr = c.rnr
	}
	n.e.ok(qp.Modify(initAttr(access)))
	n.e.ok(qp.Modify(rtrAttr(peer, num)))
	n.e.ok(qp.Modify(rtsAttr(rnr)))
}

// connect makes a connected pair of QPs between nodes a and b, which may be the same.
func (e *env) connect(a, b *node, ca, cb qpConf) (verbs.QP, verbs.QP) {
	e.t.Helper()
	qa, qb := a.newQP(ca), b.newQP(cb)
	a.raise(qa, b.dev, qb.Num(), ca)
	b.raise(qb, a.dev, qa.Num(), cb)
	return qa, qb
}

// poll polls every device once and records the completions.
func (e *env) poll() {
	for _, n := range e.nodes {
		if !n.dead {
			n.pollCQ(n.cq)
		}
	}
}

func (n *node) pollCQ(cq verbs.CQ) {
	letGo(n.dev, func() {})
	k, err := Poll(cq, n.wc[:])
	if err != nil {
		n.e.t.Helper()
		n.e.t.Fatalf("Drain: %v", err)
	}
	n.got = append(n.got, n.wc[:k]...)
	for t, ok := n.pollTold(); ok; t, ok = n.pollTold() {
		n.told = append(n.told, t)
	}
	for {
		ev, ok := n.dev.PollAsync()
		if !ok {
			return
		}
		n.evs = append(n.evs, ev)
	}
}

func (n *node) pollTold() (verbs.Told, bool) {
	if n.deaf {
		return verbs.Told{}, false
	}
	return n.dev.PollTold()
}

// shut destroys the node's objects and closes its device.
func (n *node) shut() {
	n.e.t.Helper()
	n.dead = true
	for i := len(n.free) - 1; i >= 0; i-- {
		n.e.ok(n.free[i]())
	}
	n.free = nil
	n.e.ok(n.dev.Close())
}

// until polls until cond holds.
func (e *env) until(what string, cond func() bool) {
	e.t.Helper()
	deadline := time.Now().Add(max(patience, testlevel.Patience(e.opts.Patience)))
	oneP := runtime.GOMAXPROCS(0) == 1
	for i := 1; !cond(); i++ {
		e.poll()
		if oneP && i%64 == 0 {
			// Devices connect in the background, which on one processor needs this goroutine idle.
			time.Sleep(time.Microsecond)
		}
		if i%1024 == 0 && time.Now().After(deadline) {
			e.t.Fatalf("waited in vain for %s", what)
		}
	}
}

// settle polls for a while, so that illegal events had time to happen.
func (e *env) settle() {
	e.t.Helper()
	for range 300 {
		e.poll()
	}
}

// next takes the node's next completion.
func (n *node) next() verbs.WC {
	n.e.t.Helper()
	n.e.until("a completion on "+n.dev.Name(), func() bool { return len(n.got) > 0 })
	w := n.got[0]
	n.got = n.got[1:]
	return w
}

// wantLast waits for the success of request wrid and discards the completions before it.
func (n *node) wantLast(wrid uint64) {
	n.e.t.Helper()
	for w := n.next(); w.WRID != wrid || w.Status != verbs.WCSuccess; w = n.next() {
	}
}

// want takes the node's next completion and checks it.
func (n *node) want(wrid uint64, status verbs.WCStatus) verbs.WC {
	n.e.t.Helper()
	w := n.next()
	if w.WRID != wrid || w.Status != status {
		n.e.t.Fatalf("completion of request %d with %v, want %d with %v", w.WRID, w.Status, wrid, status)
	}
	return w
}

// refused reports whether a request that its peer refuses with want may have the status got.
func (e *env) refused(got, want verbs.WCStatus) bool {
	return got == want || e.opts.Lossy && got == verbs.WCRetryExcErr
}

// none checks that there is no completion.
func (n *node) none() {
	n.e.t.Helper()
	n.e.settle()
	if len(n.got) > 0 {
		n.e.t.Fatalf("unexpected completion %+v", n.got[0])
	}
}

// wantEvent waits for an asynchronous event, discarding others.
func (n *node) wantEvent(typ verbs.AsyncEventType) verbs.AsyncEvent {
	n.e.t.Helper()
	var found verbs.AsyncEvent
	n.e.until("event "+typ.String(), func() bool {
		for i, ev := range n.evs {
			if ev.Type == typ {
				found = ev
				n.evs = append(n.evs[:i:i], n.evs[i+1:]...)
				return true
			}
		}
		return false
	})
	return found
}

// wantFailure waits for the event of a queue pair that has failed, if the device has such events.
func (n *node) wantFailure(typ verbs.AsyncEventType, qp verbs.QP) {
	n.e.t.Helper()
	if n.e.opts.NoEvents {
		n.e.settle()
		if len(n.evs) > 0 {
			n.e.t.Fatalf("%+v", n.evs)
		}
	} else if ev := n.wantEvent(typ); ev.QP != qp.Num() {
		n.e.t.Fatalf("%+v, want queue pair %d", ev, qp.Num())
	}
}

// refuse posts requests. bad must be the first that fails, with errno.
func refuse[WR any](e *env, post func(*WR) (*WR, error), first, bad *WR, errno syscall.Errno) {
	e.t.Helper()
	got, err := post(first)
	e.errno(err, errno)
	if got != bad {
		e.t.Fatalf("%+v is reported as failing, want %+v", got, bad)
	}
}

func sge(mr verbs.MR, b []byte) []verbs.SGE { return []verbs.SGE{{Data: b, LKey: mr.LKey()}} }

// received is the data of a receive, lent or in the posted buffer.
func received(w verbs.WC, buf []byte) []byte {
	if w.Data != nil {
		return w.Data
	}
	return buf[:w.ByteLen]
}

func (n *node) send(qp verbs.QP, wr verbs.SendWR) {
	n.e.t.Helper()
	_, err := qp.PostSend(&wr)
	n.e.ok(err)
}

func (n *node) recv(qp verbs.QP, wrid uint64, sg []verbs.SGE) {
	n.e.t.Helper()
	_, err := qp.PostRecv(&verbs.RecvWR{WRID: wrid, SGList: sg})
	n.e.ok(err)
}
