package soft

import (
	"cmp"
	"fmt"
	"slices"
	"syscall"

	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/wire"
)

// queuePair is an RC queue pair. Requester, with reader, and responder are its sending and its
// receiving half: types of their own, with methods of their own, that it embeds. It has itself what
// concerns both: state, link, regions, tag matching.
type queuePair struct {
	d     *Device
	pd    *protDomain
	num   uint32
	state verbs.QPState
	set   verbs.QPState    // the last one by Modify
	attr  verbs.QPAttr     // State and AV.Wire are not kept here
	init  verbs.QPInitAttr // as created
	scq   *compQueue       // of send requests
	rcq   *compQueue       // of receives; that of the SRQ if it matches tags
	rq    *recvQueue       // the QP's own, or that of srq
	srq   *sharedQueue     // nil: none

	tm  *tagQueue    // of srq; nil: no tag matching
	dev *deviceQueue // the device uses the send queue for rendezvous; nil: the program uses it

	link    wire.Link  // from RTR until it breaks; before it is up it may change, see LinkYielded
	maxPay  int        // link.MaxPayload
	inWork  bool       // in Device.work
	discDue bool       // the peer has to be told that this QP answers no more
	late    *lateFlush // it has failed, and its requests have not ended; nil: they have
	gone    bool       // destroyed
	used    bool       // was connected before a reset: packets that arrive in RESET are old
	early   bool       // see nic.comesEarly
	missed  *missed    // its peer answers no more, as it was told before RTR; nil: it was not

	discStatus uint8  // discDue: verbs.WCStatus of the failure; 0: none that is reported
	discImm    uint32 // discDue: wire.Destroyed, or 0

	requester
	reader
	responder
	wire string // name of the wire of link, also after that has broken
}

// newQueuePair makes one that has its halves, and nothing else.
func (d *Device) newQueuePair() *queuePair {
	q := &queuePair{d: d}
	q.requester.q, q.reader.q, q.responder.q = q, q, q
	return q
}

// CreateQP makes a queue pair in state RESET.
func (p *protDomain) CreateQP(attr *verbs.QPInitAttr) (verbs.QP, error) {
	defer p.d.enter("create_qp")()
	p.d.nic.slow()
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

// newQP checks attr, in which it sets the capabilities that the QP gets, and makes a QP.
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
	attr.ReadFaults = attr.ReadFaults && p.d.attr.ReadFaults
	q := p.d.newQueuePair()
	q.pd, q.scq, q.rcq = p, scq, rcq
	c.MaxSendSGE, c.MaxRecvSGE = max(c.MaxSendSGE, 1), max(c.MaxRecvSGE, 1)
	if attr.SRQ != nil {
		s, ok := attr.SRQ.(*sharedQueue)
		if !ok || s.gone || s.pd != p {
			return nil, fail(op, syscall.EINVAL, "the SRQ must be live and of the same protection domain")
		}
		q.srq, q.rq = s, &s.recvQueue
		c.MaxRecvWR, c.MaxRecvSGE = 0, 0 // ignored with an SRQ (ibv_create_qp(3))
		if s.tm != nil {                 // TMO 1.3: receives complete on the SRQ's CQ
			q.tm, q.rcq = s.tm, s.tm.cq
			if c.MaxSendWR == 0 {
				q.dev = new(deviceQueue)
			}
		}
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

// number gives q a QP number. Numbers are used again as late as possible.
func (d *Device) number(q *queuePair) error {
	var i uint32
	if n := len(d.freeQP); n > 64 || n > 0 && len(d.qps) > MaxQP {
		i = d.freeQP[0]
		d.freeQP = d.freeQP[1:]
	} else if len(d.qps) <= MaxQP {
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
	defer q.d.enter("query_qp")()
	return q.d.nic.shows(q)
}

// Query returns the attributes, and those of creation.
func (q *queuePair) Query() (verbs.QPAttr, verbs.QPInitAttr, error) {
	defer q.d.enter("query_qp")()
	a := q.attr
	a.State, a.AV.Wire = q.state, q.wire
	return a, q.init, nil
}

// Modify changes attributes and state (TMO 8.1). With an error nothing has changed, except with
// EBUSY of a change to RESET, see quietTime.
func (q *queuePair) Modify(attr *verbs.QPAttr, mask verbs.QPAttrMask) error {
	defer q.d.enter("modify_qp")()
	q.d.nic.slow()
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
		return fail("modify_qp", syscall.EINVAL, "MaxRdAtomic or MaxDestRdAtomic is above the device's MaxQPInitRdAtom or MaxQPRdAtom")
	}
	if to == verbs.QPSRTR && q.state == verbs.QPSInit {
		l, name, err := q.d.connect(attr.AV.Address)
		if err != nil {
			return err
		}
		q.route(l, name)
	}
	q.take(attr, mask)
	return q.enter(to)
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

// enter changes the state.
func (q *queuePair) enter(to verbs.QPState) error {
	from := q.state
	q.set = to
	switch to {
	case from:
	case verbs.QPSReset:
		q.disconnect()
		return q.reset("modify_qp")
	case verbs.QPSErr:
		q.resp.clear()
		q.toErr(verbs.WCWRFlushErr, q.reclaimed, false, 0)
	case verbs.QPSRTR:
		q.state = to
		q.responder.start(q.attr.RQPSN)
		if q.missed != nil {
			q.d.queue(q)
		}
	case verbs.QPSRTS:
		q.state = to
		q.requester.start()
		if q.dev != nil {
			q.feed()
		}
	default:
		q.state = to
	}
	return nil
}

// reset forgets everything that was posted, without completions, for the call op. It waits for a
// peer that is in the middle of a copy, see quietTime.
func (q *queuePair) reset(op string) error {
	q.dropInline()
	q.state = verbs.QPSReset
	late := cmp.Or(q.late, q.endPushes())
	q.late = nil
	q.abandonTags()
	q.d.nic.settles(q)
	if q.tm != nil && q.tm.faults != nil {
		q.tm.faults.hasten(q)
	}
	q.checkReset()
	q.attr, q.early, q.missed = verbs.QPAttr{}, false, nil
	q.used = q.used || q.link != nil
	q.link, q.wire = nil, ""
	q.scq.forget(q)
	q.requester.clear()
	q.reader.clear()
	q.responder.clear()
	if q.srq == nil {
		q.rq.head = q.rq.tail
	}
	return late.await(op)
}

// connected reports whether the QP executes requests of its peer.
func (q *queuePair) connected() bool { return q.state == verbs.QPSRTR || q.state == verbs.QPSRTS }

// disconnect tells the peer that this QP answers no more, before a reset, if the peer does not know
// that yet.
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
	// There is no room: a lingering one sends it later, so that this QP can be used again.
	q.discDue = false
	q.d.linger(q.num, q.link, q.attr.DestQPN, q.discStatus, q.discImm)
}

// linger tells a peer, when there is room, that its queue pair peer, 0: any, has no partner num any
// more, or never had one: status and imm say why.
func (d *Device) linger(num uint32, l wire.Link, peer uint32, status uint8, imm uint32) {
	q := d.newQueuePair()
	q.num, q.link, q.gone, q.state, q.attr.DestQPN = num, l, true, verbs.QPSErr, peer
	q.discDue, q.discStatus, q.discImm = true, status, imm
	d.lingering = append(d.lingering, q)
	d.queue(q)
}

// Destroy frees the queue pair. Outstanding requests get no completions. It is gone with EBUSY,
// too, see quietTime.
func (q *queuePair) Destroy() error {
	defer q.d.enter("destroy_qp")()
	if q.gone {
		return fail("destroy_qp", syscall.EINVAL, "the queue pair is gone already")
	}
	q.disconnect()
	err := q.reset("destroy_qp")
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
	return err
}

// pump transmits acknowledgements, requests, responses and the disconnect as far as there is room.
// It returns true if some are left.
func (q *queuePair) pump() bool {
	if q.link == nil {
		return false
	}
	if !q.sendAck() {
		return true
	}
	left := false
	for q.fast && q.sent != q.posted {
		if !q.transmit() {
			left = q.fast
			break
		}
	}
	if q.resp.len() > 0 && !q.respond() {
		return true
	}
	if q.discDue && q.sendDisconnect() {
		q.discDue = false
		if q.gone {
			q.d.lingering = slices.DeleteFunc(q.d.lingering, func(g *queuePair) bool { return g == q })
		}
	}
	return left || q.discDue
}

// sendDisconnect tells the peer that this QP answers no more. It returns false if there is no room,
// or something that was told before waits for it: the program may have said why.
func (q *queuePair) sendDisconnect() bool {
	if q.d.telling && q.d.lines.waits(q.link) {
		return false
	}
	q.d.scratch = wire.Header{Op: wire.OpDisconnected, Flags: wire.FlagFirst | wire.FlagLast, Status: q.discStatus, QPN: q.attr.DestQPN,
		Imm: q.discImm, Addr: uint64(q.num)}
	if !q.link.Send(&q.d.scratch, nil, nil) {
		return false
	}
	q.d.dirty = true
	return true
}

// toErr moves the QP to ERR. The first outstanding request from index first on completes with
// status, all others with WR_FLUSH_ERR; receives of an SRQ stay posted (TMO 8.3). Unless the peer
// knows of it, or cannot be told (known), it is told, with status tell.
func (q *queuePair) toErr(status verbs.WCStatus, first uint32, known bool, tell verbs.WCStatus) {
	if q.state == verbs.QPSErr {
		return
	}
	q.discDue = !known && q.connected() && q.link != nil
	q.discStatus, q.discImm = uint8(tell), 0
	q.state = verbs.QPSErr
	q.fast = false
	q.dropInline()
	if q.discDue {
		q.d.queue(q)
	}
	late := q.d.nic.delays(q, q.endPushes(), status)
	q.reader.clear()
	if late == nil {
		q.flushAll(status, first)
		return
	}
	q.late, late.status, late.first = late, status, first
	q.d.late = append(q.d.late, late)
	if q.d.armed {
		q.d.keepAwake()
	}
}

// flushAll completes all that a queue pair which has failed has under way, see toErr.
func (q *queuePair) flushAll(status verbs.WCStatus, first uint32) {
	q.flushSQ(status, first)
	q.abandonTags()
	q.flushRQ()
	q.checkAllEnded()
	if q.srq != nil {
		q.d.failed(verbs.AsyncEvent{Type: verbs.EventQPLastWQEReached, QP: q.num})
	}
}

// flushRQ flushes the receive of the message under way, and the QP's own posted receives.
func (q *queuePair) flushRQ() {
	wc := verbs.WC{Status: verbs.WCWRFlushErr, Opcode: verbs.WCRecv, QPNum: q.num}
	if q.rx.active && q.rx.hasWR {
		wc.WRID = q.rx.wrid
		q.rcq.push(&wc, frees{}, false)
	}
	q.rx = rxMessage{}
	if q.srq != nil {
		return
	}
	for q.rq.posted() > 0 {
		wc.WRID = q.rq.oldest().wrid
		q.rq.head++
		q.rcq.push(&wc, frees{}, false)
	}
}

// PostRecv posts receives to the QP's own queue.
func (q *queuePair) PostRecv(wr *verbs.RecvWR) (bad *verbs.RecvWR, err error) {
	defer q.d.enter("post_recv")()
	switch {
	case q.srq != nil:
		return wr, fail("post_recv", syscall.EINVAL, "the queue pair receives from its SRQ")
	case q.state == verbs.QPSReset:
		return wr, fail("post_recv", syscall.EINVAL, "the queue pair is in RESET")
	}
	for ; wr != nil; wr = wr.Next {
		if err = q.rq.post("post_recv", wr); err != nil {
			bad = wr
			break
		}
	}
	if q.state == verbs.QPSErr && q.late == nil {
		q.flushRQ()
	}
	q.d.postedRecv()
	return bad, err
}

// peerLost fails the QP, if it was connected, because its peer, or the link to it, has ended.
func (q *queuePair) peerLost() bool {
	lost := q.connected()
	if lost {
		q.toErr(verbs.WCRetryExcErr, q.reclaimed, true, 0)
	}
	return lost
}
