package soft

import (
	"encoding/binary"

	"github.com/tagmatch/tagmatch/internal/invariant"
	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/wire"
)

// A push replaces the RDMA READ of a rendezvous on shared memory: the peer, which has the data,
// writes it into this process's memory. The device asks for that when its own goroutine runs it
// (Device.Async), so that the copy does not hold up the program, which computes on the same
// processor. Requests, responses and their order are those of a READ by packets.
//
// The destination is registered as a region of the device's own for each push. Whatever ends the
// receive first removes that region, and then waits until the peer does not write to it any more
// (PushLink.Quiet): the peer sets a busy flag in shared memory before it checks the region. Only
// then does the program get its buffer back.

// pushBytes is the payload of wire.OpPushReq: destination address and key.
const pushBytes = 12

// askPush asks the peer to push the data of the READ at index sent. It returns false if this device
// has to read it.
func (q *queuePair) askPush(w *sendWork, e *sendEntry) bool {
	a := q.d.async
	if q.dev == nil || a == nil || !a.alone || w.nsge != 1 {
		return false
	}
	l, ok := q.link.(wire.PushLink)
	if !ok || !l.CanPush() {
		return false
	}
	dst := q.sgesOf(q.sent & q.mask)[0].Data
	r, err := q.d.regions.Register(dst, verbs.AccessLocalWrite|verbs.AccessRemoteWrite, nil)
	if err != nil {
		return false
	}
	body := binary.LittleEndian.AppendUint64(q.d.operands[:0], r.Addr())
	body = binary.LittleEndian.AppendUint32(body, r.RKey())
	if !q.request(wire.OpPushReq, w, uint64(e.length), body) {
		q.d.regions.Remove(r.RKey())
		return false
	}
	if invariant.Enabled {
		q.d.inv.pushes[r.RKey()] = &dst[0]
	}
	w.push = r.RKey()
	return true
}

// recvPushReq receives a request to push.
func (q *queuePair) recvPushReq(l wire.Link, h *wire.Header, payload []byte) {
	if !q.accepts(l, h) {
		return
	}
	if len(payload) != pushBytes {
		q.d.violation(l, "a malformed request to push for QP %d", q.num)
		return
	}
	// A refused push fails alone: the requester then reads, and that request may fail more.
	q.answerRead(h, response{op: wire.OpPushResp, psn: h.PSN, rkey: h.RKey, addr: h.Addr, total: h.Total, alone: true,
		value: binary.LittleEndian.Uint64(payload), key: binary.LittleEndian.Uint32(payload[8:])})
}

// push copies the next chunk. It returns true when the push has ended, with r.status.
func (q *queuePair) push(r *response) bool {
	if r.off == r.total || r.status != 0 {
		return true
	}
	src, ok := q.d.regions.Resolve(&q.pd.Domain, r.rkey, r.addr+r.off, min(r.total-r.off, wire.MaxChunk), verbs.AccessRemoteRead)
	mem, can := q.link.Memory().(wire.RemoteWriter)
	switch {
	case !ok:
		r.status = uint8(verbs.WCRemAccessErr) // deregistered meanwhile: a READ will fail too
	case !can:
		r.status = uint8(verbs.WCRemOpErr)
	default:
		r.status = uint8(mem.Write(src, r.value+r.off, r.key))
	}
	r.off += uint64(len(src))
	return r.off == r.total || r.status != 0
}

// recvPushResp receives the end of a push.
func (q *queuePair) recvPushResp(l wire.Link, h *wire.Header) {
	e, w, i := q.answered(l, h, wire.OpPushResp)
	if e == nil {
		return
	}
	q.d.regions.Remove(w.push)
	if invariant.Enabled {
		delete(q.d.inv.pushes, w.push)
		if p, ok := q.link.(wire.PushLink); ok {
			p.Quiet() // a peer that responds too early must not look like a late write of this device
		}
	}
	w.push = 0
	sges := q.sgesOf(i & q.mask)[:w.nsge]
	switch {
	case h.Status != uint8(verbs.WCSuccess):
		q.readInstead(i, verbs.WCStatus(h.Status))
		return
	case !q.mayWrite(sges, 0, sges[0].Data):
		e.status = uint8(verbs.WCLocProtErr)
	default:
		q.d.async.pushed++
	}
	q.gotAnswer(e)
}

// readInstead reads what the peer could not push. If the data is not accessible the READ fails too.
func (q *queuePair) readInstead(i uint32, why verbs.WCStatus) {
	if l, ok := q.link.(wire.PushLink); ok {
		l.Quiet()
		if why == verbs.WCRemOpErr {
			l.CannotPush()
		}
	}
	q.rdq.pop()
	q.ackTo(i + 1)
	q.readDirect(i)
}

// endPushes removes the regions that the peer may push to, and returns when it does not write to
// them any more, so that their receives can end.
func (q *queuePair) endPushes() {
	open := false
	for k := range q.rdq.len() {
		if w := &q.more[*q.rdq.at(k)&q.mask]; w.push != 0 {
			q.d.regions.Remove(w.push)
			if invariant.Enabled {
				delete(q.d.inv.pushes, w.push)
			}
			w.push, open = 0, true
		}
	}
	if l, ok := q.link.(wire.PushLink); open && ok {
		l.Quiet()
	}
}
