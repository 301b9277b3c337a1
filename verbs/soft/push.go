package soft

import (
	"encoding/binary"

	"github.com/tagmatch/tagmatch/internal/invariant"
	"github.com/tagmatch/tagmatch/verbs"
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

// pushLink is a link whose peer may be able to write to our memory.
type pushLink interface {
	// canPush says that the kernel lets the peer write to our memory, as far as we know, and us
	// read the peer's: that is what is left when it does not.
	canPush() bool
	// cannotPush is called when the kernel did not.
	cannotPush()
	// quiet returns when the peer copies nothing to a region that has been removed before.
	quiet()
}

// remoteWriter is remoteMemory that can be written to.
type remoteWriter interface {
	// write copies src to the peer's address addr inside region rkey.
	write(src []byte, addr uint64, rkey uint32) verbs.WCStatus
}

// pushBytes is the payload of opPushReq: destination address and key.
const pushBytes = 12

// askPush asks the peer to push what the read at sent is for. false: we have to read it ourselves.
func (q *queuePair) askPush(w *sendWork, e *sendEntry) bool {
	a := q.d.async
	if q.dev == nil || a == nil || !a.alone || w.nsge != 1 {
		return false
	}
	l, ok := q.link.(pushLink)
	if !ok || !l.canPush() {
		return false
	}
	dst := q.sgesOf(q.sent & q.mask)[0].Data
	r, err := q.d.regions.register(dst, verbs.AccessLocalWrite|verbs.AccessRemoteWrite, nil)
	if err != nil {
		return false
	}
	body := binary.LittleEndian.AppendUint64(q.d.operands[:0], r.addr)
	body = binary.LittleEndian.AppendUint32(body, r.rkey)
	if !q.request(opPushReq, w, uint64(e.length), body) {
		q.d.regions.remove(r.rkey)
		return false
	}
	if invariant.Enabled {
		q.d.inv.pushes[r.rkey] = &dst[0]
	}
	w.push = r.rkey
	return true
}

// recvPushReq takes a request to push.
func (q *queuePair) recvPushReq(l link, h *header, payload []byte) {
	if !q.accepts(l, h) {
		return
	}
	if len(payload) != pushBytes {
		q.d.violation(l, "a malformed request to push for QP %d", q.num)
		return
	}
	// A refusal fails the push alone: the read that follows finds out what else it fails.
	q.answerRead(h, response{op: opPushResp, psn: h.psn, rkey: h.rkey, addr: h.addr, total: h.total, alone: true,
		value: binary.LittleEndian.Uint64(payload), key: binary.LittleEndian.Uint32(payload[8:])})
}

// push copies the next chunk. It returns true when the push is over; r.status says how it went.
func (q *queuePair) push(r *response) bool {
	if r.off == r.total || r.status != 0 {
		return true
	}
	src, ok := q.d.regions.resolve(q.pd, r.rkey, r.addr+r.off, min(r.total-r.off, maxChunk), verbs.AccessRemoteRead)
	mem, can := q.link.memory().(remoteWriter)
	switch {
	case !ok:
		r.status = uint8(verbs.WCRemAccessErr) // withdrawn meanwhile; a read will find out as well
	case !can:
		r.status = uint8(verbs.WCRemOpErr)
	default:
		r.status = uint8(mem.write(src, r.value+r.off, r.key))
	}
	r.off += uint64(len(src))
	return r.off == r.total || r.status != 0
}

// recvPushResp takes the end of a push.
func (q *queuePair) recvPushResp(l link, h *header) {
	e, w, i := q.answered(l, h, opPushResp)
	if e == nil {
		return
	}
	q.d.regions.remove(w.push)
	if invariant.Enabled {
		delete(q.d.inv.pushes, w.push)
		if p, ok := q.link.(pushLink); ok {
			p.quiet() // a peer that answers before it has copied is not to be taken for a late write of ours
		}
	}
	w.push = 0
	sges := q.sgesOf(i & q.mask)[:w.nsge]
	switch {
	case h.status != uint8(verbs.WCSuccess):
		q.readInstead(i, verbs.WCStatus(h.status))
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
	if l, ok := q.link.(pushLink); ok {
		l.quiet()
		if why == verbs.WCRemOpErr {
			l.cannotPush()
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
			q.d.regions.remove(w.push)
			if invariant.Enabled {
				delete(q.d.inv.pushes, w.push)
			}
			w.push, open = 0, true
		}
	}
	if l, ok := q.link.(pushLink); open && ok {
		l.quiet()
	}
}
