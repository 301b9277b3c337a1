package soft

import (
	"fmt"

	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/taglist"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/wire"
)

// deviceQueue belongs to a QP on a tag-matching SRQ whose send queue has length 0 for the program:
// the device issues the RDMA READs and FINs of rendezvous on it (TMO 1.3).
type deviceQueue struct {
	jobs   fifo[rndvJob]       // rendezvous under way, in order of their matches
	issued int                 // the first so many jobs have their READ in the send queue
	fins   fifo[[finSize]byte] // FINs that are not in the send queue yet
	buf    [finSize]byte       // arguments of the request being posted
	sg     [1]verbs.SGE        // of a FIN
	wr     verbs.SendWR
}

const (
	finSize     = verbs.TMHSize + verbs.RVHSize // bytes of a FIN (TMO 2.4)
	deviceDepth = 256                           // most READs and FINs in the send queue
)

// rndvJob is a rendezvous between MATCH and DATA_VALID.
type rndvJob struct {
	tmh       verbs.TMH // of the request
	rvh       verbs.RVH
	index     uint32   // of the READ in the send queue
	done      bool     // the READ has ended
	solicited bool     // of the request
	hnd       uint32   // of the matched entry
	wc        verbs.WC // its DATA_VALID completion
	buf       sge
}

// rndvMatched starts a rendezvous, or leaves it to software (RNDV_INCOMPLETE).
func (q *queuePair) rndvMatched(h *wire.Header, payload []byte, tmh verbs.TMH, e *taglist.Entry) {
	rvh := verbs.ParseRVH(payload[verbs.TMHSize:])
	t := q.tm
	wc := verbs.WC{WRID: e.WRID, Opcode: verbs.WCTMRecv, Flags: verbs.WCFlagTMMatch, QPNum: q.num & t.names, Priv: tmh.AppCtx, Tag: tmh.Tag}
	if q.dev == nil || uint64(rvh.Len) > e.Buf.Length || rvh.Len > maxMsgSize {
		q.rndvIncomplete(h, payload, wc, e)
		return
	}
	t.cq.push(&wc, frees{}, false)
	j := rndvJob{tmh: tmh, rvh: rvh, hnd: e.Handle, solicited: h.Flags&wire.FlagSolicited != 0,
		wc: verbs.WC{WRID: e.WRID, Opcode: verbs.WCTMRecv, Flags: verbs.WCFlagTMDataValid, ByteLen: rvh.Len, QPNum: q.num}}
	withImm(&j.wc, h)
	j.buf = sge{addr: e.Buf.Addr, length: uint64(rvh.Len), lkey: e.Buf.LKey}
	q.executed(h)
	if rvh.Len == 0 {
		q.rndvDone(&j)
	} else {
		q.dev.jobs.push(j)
	}
	q.feed()
}

// rndvIncomplete leaves a matched rendezvous to software: it copies TMH and RVH into the tagged
// buffer, as far as they fit (TMO 4.2, 9).
func (q *queuePair) rndvIncomplete(h *wire.Header, payload []byte, wc verbs.WC, e *taglist.Entry) {
	t := q.tm
	m := &q.rx
	m.hnd, m.wrid, m.sges[0] = e.Handle, e.WRID, sgeOfEntry(e)
	n := min(finSize, e.Buf.Length)
	solicited := h.Flags&wire.FlagSolicited != 0
	switch status := q.land(m.sges[:1], 0, payload[:n]); {
	case status == verbs.WCSuccess:
	case status == verbs.WCLocAccessErr && q.init.ReadFaults: // as a READ to there would
		t.cq.push(&wc, frees{}, false)
		wc.Status, wc.Flags = status, verbs.WCFlagTMDataValid
		t.dataValid(&wc, m.hnd, solicited)
		q.executed(h)
		return
	default:
		q.matchFails(h.PSN, &wc, verbs.WCLocProtErr, verbs.WCRemOpErr)
		return
	}
	wc.Status, wc.ByteLen = verbs.WCTMRndvIncomplete, uint32(n)
	if t.faults == nil || !t.faults.TwoIncomplete {
		wc.Flags |= verbs.WCFlagTMDataValid
		withImm(&wc, h)
		t.cq.push(&wc, frees{tm: t, hnd: m.hnd}, solicited)
	} else {
		t.cq.push(&wc, frees{}, solicited)
		wc.Status, wc.Flags, wc.Tag, wc.Priv = verbs.WCSuccess, verbs.WCFlagTMDataValid, 0, 0
		withImm(&wc, h)
		t.dataValid(&wc, m.hnd, solicited)
	}
	q.executed(h)
}

// feed posts FINs and READs as far as the send queue has room.
func (q *queuePair) feed() {
	v := q.dev
	if q.state != verbs.QPSRTS {
		return
	}
	for q.posted-q.reclaimed < uint32(len(q.sq)) {
		switch {
		case v.fins.len() > 0:
			v.buf = *v.fins.front()
			v.fins.pop()
			v.sg[0] = verbs.SGE{Data: v.buf[:]}
			v.wr = verbs.SendWR{Opcode: verbs.WRSend, Flags: verbs.SendInline | verbs.SendSignaled, SGList: v.sg[:]}
			q.enqueue(&v.wr, nil, finSize)
		case v.issued < v.jobs.len():
			j := v.jobs.at(v.issued)
			v.issued++
			j.index = q.posted
			v.wr = verbs.SendWR{Opcode: verbs.WRRDMARead, RemoteAddr: j.rvh.VA, RKey: j.rvh.RKey}
			q.enqueue(&v.wr, []sge{j.buf}, j.buf.length)
		default:
			q.d.queue(q)
			return
		}
	}
	q.d.queue(q)
}

// readDone ends the job whose READ was request i. READs from memory and by packets may overtake
// each other. One that has failed alone ends its receive with an error, and the sender gets no FIN.
func (q *queuePair) readDone(i uint32, status verbs.WCStatus) {
	v := q.dev
	for k := range v.issued {
		if j := v.jobs.at(k); j.index == i && !j.done {
			j.done = true
			if status != verbs.WCSuccess {
				j.wc.Status, j.wc.ByteLen = status, 0
				q.tm.dataValid(&j.wc, j.hnd, j.solicited)
			} else {
				q.rndvDone(j)
			}
			break
		}
	}
	for v.issued > 0 && v.jobs.front().done {
		v.jobs.pop()
		v.issued--
	}
	q.feed()
}

// rndvDone completes a rendezvous at both ends. The FIN for the sender has the headers of its own
// request (TMO 2.4).
func (q *queuePair) rndvDone(j *rndvJob) {
	var fin [finSize]byte
	j.tmh.Opcode = verbs.TMHFin
	j.tmh.Put(fin[:])
	j.rvh.Put(fin[verbs.TMHSize:])
	if f := q.tm.faults; f == nil || !f.delaysFIN(q, &fin) {
		q.dev.fins.push(fin)
	}
	q.tm.dataValid(&j.wc, j.hnd, j.solicited)
}

// abandonRndv ends the jobs of a QP that fails or is reset (code 0xC of TMO 4.3).
func (q *queuePair) abandonRndv() {
	v := q.dev
	for ; v.jobs.len() > 0; v.jobs.pop() {
		if j := v.jobs.front(); !j.done {
			j.wc.Status, j.wc.ByteLen = verbs.WCTMRndvIncomplete, 0
			q.abandon(&j.wc, j.hnd)
		}
	}
	v.issued = 0
	v.fins.clear()
	if f := q.tm.faults; f != nil {
		f.forget(q)
	}
}

// deviceFailed reports a failure of the device's own requests. A NIC has an event for it too: no
// completion tells of it.
func (q *queuePair) deviceFailed(status verbs.WCStatus) {
	if status == verbs.WCWRFlushErr || status == verbs.WCRetryExcErr && q.d.nic.hearsPeers() { // a lost peer has its own event
		return
	}
	typ := verbs.EventQPFatal
	if status == verbs.WCRemAccessErr {
		typ = verbs.EventQPAccessErr
	}
	q.d.event(verbs.AsyncEvent{Type: typ, QP: q.num,
		Err: fmt.Errorf("the device's read or FIN failed: %w", &verbs.StatusError{Status: status})})
}

// dataValid completes a receive whose MATCH was reported.
func (t *tagQueue) dataValid(wc *verbs.WC, hnd uint32, solicited bool) {
	if f := t.faults; f == nil || !f.delaysData(wc, hnd, solicited) {
		t.cq.push(wc, frees{tm: t, hnd: hnd}, solicited)
	}
}
