package soft

import (
	"fmt"
	"syscall"

	"github.com/tagmatch/tagmatch/internal/invariant"
	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/wire"
)

// queuePair is an RC queue pair. Requester and responder halves are in requester.go and
// responder.go.
type queuePair struct {
	d     *Device
	pd    *protDomain
	num   uint32
	state verbs.QPState
	attr  verbs.QPAttr
	init  verbs.QPInitAttr
	scq   *compQueue
	rcq   *compQueue
	rq    *recvQueue
	srq   *sharedQueue // nil: rq is the QP's own

	tm  *tagQueue    // of srq, if it matches tags
	dev *deviceQueue // the send queue is the device's

	link    wire.Link // from RTR until the link breaks; until it is up it may be exchanged for one of another wire
	maxPay  int
	inWork  bool // on Device.work
	reading bool // on Device.readers
	discDue bool // the peer has to be told that we left RTS
	gone    bool
	used    bool // was connected before: packets that come in RESET are late ones

	discStatus uint8  // verbs.WCStatus: why; 0 when the program wanted it
	discImm    uint32 // wire.Destroyed, or 0

	requester
	responder
	wire string // that link is on, or was before it broke
}

// CreateQP makes a queue pair in state RESET.
func (p *protDomain) CreateQP(attr *verbs.QPInitAttr) (verbs.QP, error) {
	if invariant.Enabled {
		defer p.d.enter("create_qp")()
	}
	q, err := p.newQP(attr)
	if err != nil {
		return nil, err
	}
	if err := p.d.number(q); err != nil {
		return nil, err
	}
	q.scq.users++
	q.rcq.users++
	if q.srq != nil {
		q.srq.users++
	}
	p.Users++
	return q, nil
}

func (p *protDomain) newQP(attr *verbs.QPInitAttr) (*queuePair, error) {
	const op = "create_qp"
	scq, ok1 := attr.SendCQ.(*compQueue)
	rcq, ok2 := attr.RecvCQ.(*compQueue)
	c := &attr.Cap
	switch {
	case attr.Type != verbs.QPTRC:
		return nil, fail(op, syscall.EOPNOTSUPP, fmt.Sprintf("this device has RC queue pairs only, not %v", attr.Type))
	case !ok1 || !ok2 || scq.d != p.d || rcq.d != p.d || scq.gone || rcq.gone:
		return nil, fail(op, syscall.EINVAL, "SendCQ and RecvCQ must be live completion queues of this device")
	case c.MaxSendWR > maxQPWR || attr.SRQ == nil && c.MaxRecvWR > maxQPWR:
		return nil, fail(op, syscall.EINVAL, "MaxSendWR or MaxRecvWR is above the device's MaxQPWR")
	case c.MaxSendSGE > maxSGE || attr.SRQ == nil && c.MaxRecvSGE > maxSGE:
		return nil, fail(op, syscall.EINVAL, "MaxSendSGE or MaxRecvSGE is above the device's MaxSGE")
	case int64(c.MaxInlineData) > int64(p.d.cfg.MaxInline):
		return nil, fail(op, syscall.EINVAL, "MaxInlineData is above the device's MaxInline")
	}
	q := &queuePair{d: p.d, pd: p, scq: scq, rcq: rcq}
	c.MaxSendSGE, c.MaxRecvSGE = max(c.MaxSendSGE, 1), max(c.MaxRecvSGE, 1)
	if attr.SRQ != nil {
		s, ok := attr.SRQ.(*sharedQueue)
		if !ok || s.gone || s.pd != p {
			return nil, fail(op, syscall.EINVAL, "the SRQ must be live and of the same protection domain")
		}
		q.srq, q.rq = s, &s.recvQueue
		c.MaxRecvWR, c.MaxRecvSGE = 0, 0 // ignored with an SRQ (ibv_create_qp(3))
		q.attachTags(s.tm, c.MaxSendWR)
	} else {
		q.rq = newRecvQueue(p, c.MaxRecvWR, c.MaxRecvSGE)
	}
	q.init = *attr
	n := ringSize(int(c.MaxSendWR))
	if q.dev != nil {
		n = deviceDepth
	}
	q.sq = make([]sendEntry, n)
	q.mask, q.depth = uint32(len(q.sq)-1), c.MaxSendWR
	q.sigAll = attr.SQSigAll
	return q, nil
}

// number gives q a QP number.
func (d *Device) number(q *queuePair) error {
	var i uint32
	if n := len(d.freeQP); n > 64 || n > 0 && len(d.qps) == maxQP { // let numbers rest before they come back
		i = d.freeQP[0]
		d.freeQP = d.freeQP[1:]
	} else if len(d.qps) < maxQP {
		i = uint32(len(d.qps))
		d.qps, d.qpGen = append(d.qps, nil), append(d.qpGen, 0)
	} else {
		return fail("create_qp", syscall.ENOMEM, "the device has no more queue pairs")
	}
	d.qps[i] = q
	q.num = (d.qpGen[i]<<qpIndexBits | i) & qpNumMask
	return nil
}

// Num is the queue pair's number.
func (q *queuePair) Num() uint32 { return q.num }

// State is the queue pair's state.
func (q *queuePair) State() verbs.QPState {
	if invariant.Enabled {
		defer q.d.enter("query_qp")()
	}
	return q.state
}

// Query returns the attributes.
func (q *queuePair) Query() (verbs.QPAttr, verbs.QPInitAttr) {
	if invariant.Enabled {
		defer q.d.enter("query_qp")()
	}
	a := q.attr
	a.State, a.AV.Wire = q.state, q.wire
	return a, q.init
}

// Modify changes attributes and state (TMO 8.1). After an error nothing has changed.
func (q *queuePair) Modify(attr *verbs.QPAttr, mask verbs.QPAttrMask) error {
	if invariant.Enabled {
		defer q.d.enter("modify_qp")()
	}
	if q.gone {
		return fail("modify_qp", syscall.EINVAL, "the queue pair is gone")
	}
	if err := verbs.CheckTransition(q.state, attr, mask); err != nil {
		return err
	}
	to := q.state
	if mask&verbs.QPAttrState != 0 {
		to = attr.State
	}
	switch {
	case to == verbs.QPSSQD:
		return fail("modify_qp", syscall.EOPNOTSUPP, "this device does not drain send queues (SQD)")
	case mask&(verbs.QPAttrMaxQPRdAtomic) != 0 && attr.MaxRdAtomic > maxRdAtomic,
		mask&(verbs.QPAttrMaxDestRdAtomic) != 0 && attr.MaxDestRdAtomic > maxRdAtomic:
		return fail("modify_qp", syscall.EINVAL, "MaxRdAtomic or MaxDestRdAtomic is above the device's MaxQPRdAtom")
	}
	if to == verbs.QPSRTR && q.state == verbs.QPSInit {
		l, name, err := q.d.connect(attr.AV.Address)
		if err != nil {
			return err
		}
		q.route(l, name)
	}
	q.take(attr, mask)
	q.enter(to)
	return nil
}

// take stores the attributes named by mask.
func (q *queuePair) take(attr *verbs.QPAttr, mask verbs.QPAttrMask) {
	a := &q.attr
	set := func(bit verbs.QPAttrMask, f func()) {
		if mask&bit != 0 {
			f()
		}
	}
	set(verbs.QPAttrAccessFlags, func() { a.AccessFlags = attr.AccessFlags })
	set(verbs.QPAttrPKeyIndex, func() { a.PKeyIndex = attr.PKeyIndex })
	set(verbs.QPAttrPort, func() { a.Port = attr.Port })
	set(verbs.QPAttrAV, func() { a.AV.Address = append([]byte(nil), attr.AV.Address...) })
	set(verbs.QPAttrPathMTU, func() { a.PathMTU = attr.PathMTU })
	set(verbs.QPAttrTimeout, func() { a.Timeout = attr.Timeout })
	set(verbs.QPAttrRetryCnt, func() { a.RetryCnt = attr.RetryCnt })
	set(verbs.QPAttrRNRRetry, func() { a.RNRRetry = attr.RNRRetry })
	set(verbs.QPAttrRQPSN, func() { a.RQPSN = attr.RQPSN })
	set(verbs.QPAttrMaxQPRdAtomic, func() { a.MaxRdAtomic = attr.MaxRdAtomic })
	set(verbs.QPAttrMinRNRTimer, func() { a.MinRNRTimer = attr.MinRNRTimer })
	set(verbs.QPAttrSQPSN, func() { a.SQPSN = attr.SQPSN })
	set(verbs.QPAttrMaxDestRdAtomic, func() { a.MaxDestRdAtomic = attr.MaxDestRdAtomic })
	set(verbs.QPAttrDestQPN, func() { a.DestQPN = attr.DestQPN })
}

// enter does what a change of state brings with it.
func (q *queuePair) enter(to verbs.QPState) {
	from := q.state
	switch to {
	case from:
	case verbs.QPSReset:
		q.disconnect()
		q.reset()
	case verbs.QPSErr:
		q.resp.clear()
		q.toErr(verbs.WCWRFlushErr, q.reclaimed, false, 0)
	case verbs.QPSRTR:
		q.state = to
		q.responder.start(q.attr.RQPSN)
	case verbs.QPSRTS:
		q.state = to
		q.requester.start(q)
		if q.dev != nil {
			q.feed()
		}
	default:
		q.state = to
	}
}

// reset forgets everything that was posted, without completions.
func (q *queuePair) reset() {
	q.dropInline()
	q.state = verbs.QPSReset
	q.endPushes()
	q.abandonTags()
	if invariant.Enabled {
		q.checkReset()
	}
	q.attr = verbs.QPAttr{}
	q.used = q.used || q.link != nil
	q.link, q.wire = nil, ""
	q.scq.forget(q)
	q.requester.clear()
	q.responder.clear()
	if q.srq == nil {
		q.rq.head = q.rq.tail
	}
}

// connected says that the peer may count on us.
func (q *queuePair) connected() bool { return q.state == verbs.QPSRTR || q.state == verbs.QPSRTS }

// disconnect tells the peer that this QP answers no more, if it does not know yet.
func (q *queuePair) disconnect() {
	if q.link == nil || !q.connected() && !q.discDue {
		return
	}
	if q.connected() {
		q.fast = false
		q.discDue, q.discImm = true, wire.Destroyed
	}
	if !q.pump() {
		return
	}
	// No room now: a stand-in sends it later, and this QP may be used again meanwhile.
	ghost := &queuePair{d: q.d, num: q.num, link: q.link, gone: true, discDue: true, state: verbs.QPSErr}
	ghost.attr.DestQPN, ghost.discStatus, ghost.discImm = q.attr.DestQPN, q.discStatus, q.discImm
	q.discDue = false
	q.d.ghosts = append(q.d.ghosts, ghost)
	q.d.queue(ghost)
}

// Destroy frees the queue pair. Requests that are outstanding end without completions.
func (q *queuePair) Destroy() error {
	if invariant.Enabled {
		defer q.d.enter("destroy_qp")()
	}
	if q.gone {
		return fail("destroy_qp", syscall.EINVAL, "the queue pair is gone already")
	}
	q.disconnect()
	q.reset()
	q.gone = true
	i := q.num & qpIndexMask
	q.d.qps[i] = nil
	q.d.qpGen[i]++
	q.d.freeQP = append(q.d.freeQP, i)
	q.scq.users--
	q.rcq.users--
	if q.srq != nil {
		q.srq.users--
	}
	q.pd.Users--
	return nil
}

// toErr moves the QP to ERR. The first request from index first on that is outstanding completes
// with status, all others with WR_FLUSH_ERR (TMO 8.3: SRQ receives stay). known: the peer knows
// already, or cannot be told. tell is the status that the peer gets to hear.
func (q *queuePair) toErr(status verbs.WCStatus, first uint32, known bool, tell verbs.WCStatus) {
	if q.state == verbs.QPSErr {
		return
	}
	q.discDue = !known && q.connected() && q.link != nil
	q.discStatus, q.discImm = uint8(tell), 0
	q.state = verbs.QPSErr
	q.fast = false
	q.dropInline()
	q.endPushes()
	q.flushSQ(status, first)
	q.mreads.clear()
	q.rdq.clear()
	q.abandonTags()
	q.flushRQ()
	if invariant.Enabled {
		q.checkAllEnded()
	}
	if q.srq != nil {
		q.d.event(verbs.AsyncEvent{Type: verbs.EventQPLastWQEReached, QP: q.num})
	}
	if q.discDue {
		q.d.queue(q)
	}
}

// flushRQ completes the receive that a message was being put into, and the QP's own receives.
func (q *queuePair) flushRQ() {
	wc := verbs.WC{Status: verbs.WCWRFlushErr, Opcode: verbs.WCRecv, QPNum: q.num}
	if q.rx.active && q.rx.hasWR {
		wc.WRID = q.rx.wrid
		q.rcq.push(&wc, nil, 0, false)
	}
	q.rx = rxMessage{}
	if q.srq != nil {
		return
	}
	for q.rq.posted() > 0 {
		wc.WRID = q.rq.ring[q.rq.head&uint32(len(q.rq.ring)-1)].wrid
		q.rq.head++
		q.rcq.push(&wc, nil, 0, false)
	}
}

// PostRecv posts receives to the QP's own queue.
func (q *queuePair) PostRecv(wr *verbs.RecvWR) (*verbs.RecvWR, error) {
	if invariant.Enabled {
		defer q.d.enter("post_recv")()
	}
	switch {
	case q.srq != nil:
		return wr, fail("post_recv", syscall.EINVAL, "the queue pair receives from its SRQ")
	case q.state == verbs.QPSReset:
		return wr, fail("post_recv", syscall.EINVAL, "the queue pair is in RESET")
	}
	for ; wr != nil; wr = wr.Next {
		if err := q.rq.post("post_recv", wr); err != nil {
			return wr, err
		}
	}
	if q.state == verbs.QPSErr {
		q.flushRQ()
	}
	q.d.postedRecv()
	return nil, nil
}

// peerLost fails the QP because its peer or the link to it is gone.
func (q *queuePair) peerLost(err error, event verbs.AsyncEventType) {
	if !q.connected() {
		return
	}
	q.toErr(verbs.WCRetryExcErr, q.reclaimed, true, 0)
	q.d.event(verbs.AsyncEvent{Type: event, QP: q.num, Err: err})
}
