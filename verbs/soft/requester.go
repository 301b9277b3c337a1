package soft

import (
	"fmt"
	"slices"
	"syscall"

	"github.com/tagmatch/tagmatch/internal/invariant"
	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/wire"
)

// requester is the sending half of a queue pair. Work requests have indexes, from 0 after RESET,
// modulo 2^32; index & mask is the slot in sq. The fields reclaimed, done, sent and posted are
// indexes, and
//
//	reclaimed <= done <= sent <= posted <= reclaimed + len(sq)
type requester struct {
	sq        []sendEntry
	more      []sendWork  // of requests off the fast path, a power of two, see work; grows with use
	sges      []sge       // Cap.MaxSendSGE for each element of more
	mask      uint32      // len(sq) - 1
	depth     uint32      // MaxSendWR: the most requests that the program may have outstanding
	posted    uint32      // the next request to be posted
	sent      uint32      // the first that the link has not taken (for a read: that was not started)
	done      uint32      // the first that has not completed; unsignalled SENDs and WRITEs count when sent
	reclaimed uint32      // the first whose slot is in use: polling a completion frees those up to it (TMO 8.2)
	acked     uint32      // the first that the peer may not have executed
	wrote     wroteRange  // by WRITEs and atomics, which direct reads must not overtake
	psn       uint32      // PSN of index 0
	hdr       wire.Header // of SENDs on the fast path, which change flags, lengths and PSN
	fast      bool        // state RTS, and no request has failed
	sigAll    bool        // QPInitAttr.SQSigAll

	mreads  fifo[uint32]  // indexes of reads from the peer's memory under way
	rdq     fifo[awaited] // reads, pushes and atomics that wait for response packets
	shares  int           // pushes that may be taken back
	idle    int           // passes in which this end copied nothing, and the peer was not seen to
	pushing int           // pushes that the peer was asked for and that have not ended
}

// awaited is a request that waits for its response packet.
type awaited struct {
	index uint32
	taken uint32 // the grant of a push that was taken back, and may have ended long ago; or 0
	chunk uint32 // the peer's last of a push that was revoked; 0: none

	revoked bool // the grant of the push
}

// sendEntry is the part of a send request that is needed until its completion is polled.
type sendEntry struct {
	wrid   uint64
	op     uint8 // verbs.SendOpcode
	flags  uint8 // entrySignaled and so on
	status uint8 // verbs.WCStatus if it has failed at this end
	_      uint8
	length uint32 // bytes
}

const (
	entrySignaled uint8 = 1 << iota
	entryAnswer         // read or atomic: complete with entryGot, not when acknowledged
	entryGot            // the response is complete
	entryDone           // its completion was made
	entryRefused        // a read that has failed alone (verbs.QPInitAttr.ReadFaults)
	entryHalves         // a read that is both in mreads and in rdq: it has two parts that have not ended
)

// sendWork is the part of a send request that is needed to transmit it, or to receive its response.
type sendWork struct {
	flags verbs.SendFlags
	imm   uint32 // immediate data, rkey to invalidate, or see wire.OpReadReq and wire.OpAtomicReq
	rkey  uint32 // the peer's region
	push  uint32 // the grant with which the peer pushes; 0: no push
	nsge  int32  // entries in sges; none with buf
	share bool   // the push may be taken back
	addr  uint64 // in the peer's region
	off   uint64 // bytes sent or received
	lo    uint64 // of a read from the peer's memory: this device copies from here on, 0 or
	upto  uint64 // up to here, its length; the rest the peer pushes
	comp  uint64 // operands of an atomic
	swap  uint64
	buf   []byte // inline data, from Device.pool; nil once sent
}

// wroteRange is the part of the peer's memory that requests change which it may not have executed.
type wroteRange struct {
	upto   uint32 // one above the newest of them
	lo, hi uint64 // they change nothing outside of addresses lo to hi-1
}

// changes is called when the request that is sent next changes n bytes of the peer's memory.
func (r *requester) changes(addr, n uint64) {
	w := &r.wrote
	if int32(w.upto-r.acked) <= 0 {
		w.lo, w.hi = addr, addr
	}
	w.lo, w.hi, w.upto = min(w.lo, addr), max(w.hi, addr+n), r.sent+1
}

// mayCopy reports that n bytes of the peer's memory can be read now without its doing: no request
// of this queue pair that is on its way changes them.
func (r *requester) mayCopy(addr, n uint64) bool {
	w := &r.wrote
	return int32(w.upto-r.acked) <= 0 || addr >= w.hi || addr+n <= w.lo
}

// start begins at RTS.
func (r *requester) start(q *queuePair) {
	r.psn = q.attr.SQPSN - r.posted
	r.fast = true
	r.hdr = wire.Header{Op: wire.OpSend, QPN: q.attr.DestQPN, Status: q.attr.RNRRetry}
}

// clear forgets everything that was posted.
func (r *requester) clear() {
	r.posted, r.sent, r.done, r.reclaimed, r.acked, r.wrote, r.fast = 0, 0, 0, 0, 0, wroteRange{}, false
	r.mreads.clear()
	r.rdq.clear()
	r.shares, r.idle = 0, 0
}

// reclaim frees the slots of requests before index upto. It ignores an index that is out of range.
func (q *queuePair) reclaim(upto uint32) {
	if int32(upto-q.reclaimed) > 0 && int32(q.posted-upto) >= 0 {
		old := q.reclaimed
		q.reclaimed = upto
		if invariant.Enabled {
			q.checkReclaimed(old)
		}
	}
}

// postSlow checks and posts any request, and transmits what it can.
func (q *queuePair) postSlow(wr *verbs.SendWR) error {
	total, err := q.checkSend(wr)
	if err != nil {
		return err
	}
	var list [maxSGE]sge
	q.enqueue(wr, sgesOf(&list, wr.SGList), total)
	if q.state == verbs.QPSErr {
		if q.late == nil {
			q.flushSQ(verbs.WCWRFlushErr, q.posted-1) // older requests have completed
		}
		return nil
	}
	if q.pump() {
		q.d.queue(q)
	}
	return nil
}

// checkSend checks what PostSend refuses outright and returns the length.
func (q *queuePair) checkSend(wr *verbs.SendWR) (uint64, error) {
	const op = "post_send"
	if q.state != verbs.QPSRTS && q.state != verbs.QPSErr || q.gone {
		return 0, fail(op, syscall.EINVAL, fmt.Sprintf("the queue pair is in %v: sends need RTS", q.state))
	}
	if err := verbs.CheckSend(verbs.QPTRC, wr.Opcode, wr.Flags); err != nil {
		return 0, err
	}
	switch wr.Opcode {
	case verbs.WRLocalInv, verbs.WRBindMW:
		return 0, fail(op, syscall.EOPNOTSUPP, fmt.Sprintf("this device does not do %v", wr.Opcode))
	}
	var total uint64
	for i := range wr.SGList {
		total += uint64(len(wr.SGList[i].Data))
	}
	atomic := wr.Opcode == verbs.WRAtomicCmpAndSwp || wr.Opcode == verbs.WRAtomicFetchAndAdd
	switch {
	case len(wr.SGList) > int(q.init.Cap.MaxSendSGE):
		return 0, fail(op, syscall.EINVAL, "more scatter/gather entries than MaxSendSGE")
	case wr.Flags&verbs.SendInline != 0 && total > uint64(q.init.Cap.MaxInlineData):
		return 0, fail(op, syscall.EINVAL, fmt.Sprintf("%d bytes inline, MaxInlineData is %d", total, q.init.Cap.MaxInlineData))
	case total > maxMsgSize:
		return 0, fail(op, syscall.EINVAL, "message above the device's MaxMsgSize")
	case atomic && total != 8:
		return 0, fail(op, syscall.EINVAL, "an atomic needs 8 bytes to put the old value into")
	case q.posted-q.reclaimed >= q.depth:
		return 0, fail(op, syscall.ENOMEM, "the send queue is full: slots come back when a later signalled completion is polled")
	}
	return total, nil
}

// enqueue puts a request into the ring, with a copy of inline data. list are its entries, and total
// their length.
func (q *queuePair) enqueue(wr *verbs.SendWR, list []sge, total uint64) {
	q.extend()
	e, w := &q.sq[q.posted&q.mask], q.work(q.posted)
	*e = sendEntry{wrid: wr.WRID, op: uint8(wr.Opcode), length: uint32(total)}
	if wr.Flags&verbs.SendSignaled != 0 || q.sigAll {
		e.flags = entrySignaled
	}
	*w = sendWork{flags: wr.Flags, imm: wr.Imm, rkey: wr.RKey, addr: wr.RemoteAddr, comp: wr.CompareAdd, swap: wr.Swap}
	need := verbs.AccessFlags(0)
	switch wr.Opcode {
	case verbs.WRRDMARead, verbs.WRAtomicCmpAndSwp, verbs.WRAtomicFetchAndAdd:
		e.flags |= entryAnswer
		need = verbs.AccessLocalWrite
	}
	if invariant.Enabled {
		if need != 0 {
			q.checkPosted(list)
		} else {
			q.checkPosted(nil)
		}
	}
	sges := q.room(q.posted)
	q.posted++
	if wr.Flags&verbs.SendInline != 0 {
		w.buf = q.d.pool.get(int(total))
		b := w.buf[:0]
		for k := range wr.SGList {
			b = append(b, wr.SGList[k].Data...)
		}
		return
	}
	w.nsge = int32(copy(sges, list))
	for k := range list {
		if _, ok := q.d.regions.Resolve(&q.pd.Domain, list[k].lkey, list[k].addr, list[k].length, need); !ok {
			e.status = uint8(verbs.WCLocProtErr)
		}
	}
}

// firstWork is how many requests off the fast path a queue pair has room for at first. Most of a
// large job's never have more under way.
const firstWork = 8

// extend makes room in more and sges for the request that is posted next. Elements move: who posts
// keeps no pointer to one. Only requests that are to be sent, or answered, have one.
func (q *queuePair) extend() {
	first := q.sent
	if q.mreads.len()+q.rdq.len() > 0 {
		first = q.done
	}
	more, sges := q.more, q.sges
	if q.posted-first < uint32(len(more)) {
		return
	}
	n := max(ringSize(int(q.posted-first)+1), min(firstWork, len(q.sq)))
	q.more, q.sges = make([]sendWork, n), make([]sge, n*int(q.init.Cap.MaxSendSGE))
	for i := first; i != q.posted; i++ {
		k := i & uint32(len(more)-1)
		*q.work(i) = more[k]
		copy(q.room(i), sges[k*q.init.Cap.MaxSendSGE:])
	}
}

// work is request i's element of more.
func (q *queuePair) work(i uint32) *sendWork { return &q.more[i&uint32(len(q.more)-1)] }

// room is where the entries of request i are.
func (q *queuePair) room(i uint32) []sge {
	most := q.init.Cap.MaxSendSGE
	return q.sges[i&uint32(len(q.more)-1)*most:][:most]
}

// list is the entries of request i.
func (q *queuePair) list(i uint32) []sge { return q.room(i)[:q.work(i).nsge] }

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

// sendDisconnect tells the peer that this QP answers no more. It returns false if there is no room.
func (q *queuePair) sendDisconnect() bool {
	q.d.scratch = wire.Header{Op: wire.OpDisconnected, Flags: wire.FlagFirst | wire.FlagLast, Status: q.discStatus, QPN: q.attr.DestQPN,
		Imm: q.discImm, Addr: uint64(q.num)}
	if !q.link.Send(&q.d.scratch, nil, nil) {
		return false
	}
	q.d.dirty = true
	return true
}

// transmit gives the request at sent to the link. It returns false when that has to wait, or has
// failed.
func (q *queuePair) transmit() bool {
	e, w := &q.sq[q.sent&q.mask], q.work(q.sent)
	if e.status != 0 {
		q.halt()
		return false
	}
	if w.flags&verbs.SendFence != 0 && q.mreads.len()+q.rdq.len() > 0 {
		return false
	}
	ok := false
	switch verbs.SendOpcode(e.op) {
	case verbs.WRRDMARead, verbs.WRAtomicCmpAndSwp, verbs.WRAtomicFetchAndAdd:
		ok = q.issue(e, w)
	default:
		ok = q.sendPackets(e, w, q.list(q.sent))
	}
	if !ok {
		return false
	}
	if w.buf != nil {
		q.d.pool.put(w.buf)
		w.buf = nil
	}
	q.sent++
	if e.flags&entryGot != 0 {
		q.retire() // a read of no bytes
	}
	return true
}

// halt stops transmission at a request that has failed. It completes when those before it have.
func (q *queuePair) halt() {
	q.fast = false
	q.sent++
	q.retire()
}

// sendPackets transmits the packets of a SEND or WRITE from w.off on. It returns true if all are
// sent.
func (q *queuePair) sendPackets(e *sendEntry, w *sendWork, list []sge) bool {
	h := &q.d.scratch
	*h = wire.Header{Op: wire.OpSend, QPN: q.hdr.QPN, PSN: q.sent + q.psn, Total: uint64(e.length), Status: q.hdr.Status}
	last := wire.FlagLast
	if e.flags&entrySignaled != 0 {
		last |= wire.FlagAckReq
	}
	if w.flags&verbs.SendSolicited != 0 {
		last |= wire.FlagSolicited
	}
	switch verbs.SendOpcode(e.op) {
	case verbs.WRSendWithImm:
		last |= wire.FlagImm
	case verbs.WRSendWithInv:
		last |= wire.FlagInv
	case verbs.WRRDMAWriteWithImm:
		last |= wire.FlagImm
		h.Op, h.RKey = wire.OpWrite, w.rkey
	case verbs.WRRDMAWrite:
		h.Op, h.RKey = wire.OpWrite, w.rkey
	}
	if h.Op == wire.OpWrite {
		q.changes(w.addr, uint64(e.length))
	}
	for {
		head, body, ok := q.gather(w, list, q.maxPay)
		n := uint64(len(head) + len(body))
		if first := min(len(q.d.first), q.maxPay); ok && n < uint64(first) && w.off == 0 && n < uint64(e.length) {
			body = nil
			head, ok = q.firstBytes(list, first)
			n = uint64(len(head))
		}
		if !ok { // deregistered since the request was posted
			e.status = uint8(verbs.WCLocProtErr)
			q.halt()
			return false
		}
		h.Flags, h.Imm = 0, 0
		if w.off == 0 {
			h.Flags = wire.FlagFirst
		}
		if w.off+n == uint64(e.length) {
			h.Flags |= last
			h.Imm = w.imm
		}
		h.Length = uint32(n)
		if h.Op == wire.OpWrite {
			h.Addr = w.addr + w.off
		}
		if !q.link.Send(h, head, body) {
			return false
		}
		q.d.dirty = true
		w.off += n
		if w.off == uint64(e.length) {
			return true
		}
	}
}
