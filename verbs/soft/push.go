package soft

import (
	"encoding/binary"

	"github.com/tagmatch/tagmatch/internal/invariant"
	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/wire"
)

// A push is a rendezvous read the other way round: the peer that has the data copies it into our
// memory. It takes the place of the device's RDMA read when the device works by itself, so that the
// program, which computes on this processor, is not held up; requests, answers and their order are
// those of a read by packets.
//
// Nothing but the destination is offered, for nothing but the push, as a region of the device's own
// that goes with it: so whatever ends the receive takes the right to write away before the host
// gets its buffer back. The peer says in shared memory that it is copying before it checks the
// region, and we wait for it after the region has gone.

// pushBytes is the payload of wire.OpPushReq: destination address and key.
const pushBytes = 12

// askPush asks the peer to push what the read at sent is for. false: we have to read it ourselves.
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

// recvPushReq takes a request to push.
func (q *queuePair) recvPushReq(l wire.Link, h *wire.Header, payload []byte) {
	if !q.accepts(l, h) {
		return
	}
	if len(payload) != pushBytes {
		q.d.violation(l, "a malformed request to push for QP %d", q.num)
		return
	}
	// A refusal fails the push alone: the read that follows finds out what else it fails.
	q.answerRead(h, response{op: wire.OpPushResp, psn: h.PSN, rkey: h.RKey, addr: h.Addr, total: h.Total, alone: true,
		value: binary.LittleEndian.Uint64(payload), key: binary.LittleEndian.Uint32(payload[8:])})
}

// push copies the next chunk. It returns true when the push is over; r.status says how it went.
func (q *queuePair) push(r *response) bool {
	if r.off == r.total || r.status != 0 {
		return true
	}
	src, ok := q.d.regions.Resolve(&q.pd.Domain, r.rkey, r.addr+r.off, min(r.total-r.off, wire.MaxChunk), verbs.AccessRemoteRead)
	mem, can := q.link.Memory().(wire.RemoteWriter)
	switch {
	case !ok:
		r.status = uint8(verbs.WCRemAccessErr) // withdrawn meanwhile; a read will find out as well
	case !can:
		r.status = uint8(verbs.WCRemOpErr)
	default:
		r.status = uint8(mem.Write(src, r.value+r.off, r.key))
	}
	r.off += uint64(len(src))
	return r.off == r.total || r.status != 0
}

// recvPushResp takes the end of a push.
func (q *queuePair) recvPushResp(l wire.Link, h *wire.Header) {
	e, w, i := q.answered(l, h, wire.OpPushResp)
	if e == nil {
		return
	}
	q.d.regions.Remove(w.push)
	if invariant.Enabled {
		delete(q.d.inv.pushes, w.push)
		if p, ok := q.link.(wire.PushLink); ok {
			p.Quiet() // a peer that answers before it has copied is not to be taken for a late write of ours
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

// readInstead reads what the peer could not push. If it is the data that it may not give, the read
// fails likewise.
func (q *queuePair) readInstead(i uint32, why verbs.WCStatus) {
	if l, ok := q.link.(wire.PushLink); ok {
		l.Quiet()
		if why == verbs.WCRemOpErr {
			l.CannotPush()
		}
	}
	q.rdq.pop()
	if int32(i+1-q.acked) > 0 {
		q.acked = i + 1
	}
	q.readDirect(i)
}

// endPushes takes back what was offered to the peer, and returns when it copies nothing there any
// more. The receives may end then.
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
