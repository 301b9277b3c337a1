package soft

import (
	"encoding/binary"
	"slices"

	"github.com/tagmatch/tagmatch/internal/invariant"
	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/mem"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/wire"
)

// A push replaces the RDMA READ of this device on shared memory, or half of it: the peer, which has
// the data, writes it into this process's memory. Requests, responses and their order are those of
// a READ by packets. The device asks for pushes
//   - when it works by itself (Device.Async), so that the copy of a rendezvous does not hold up the
//     program, which computes on the same processor;
//   - while the peer polls, for one half of each long READ, so that both ends copy: of these, the
//     shares, a device without reads of its own takes back those that the peer has not begun
//     (takeBack), so that a READ never waits for a peer that computes.
//
// A request holds a grant, and the peer pushes while that is valid. Where a push has to end before
// the peer's response, its grant is revoked (PushLink.Revoke). The peer may be in the middle of a
// chunk then, and be stopped there. Until it has written that (PushLink.Writes) the READ goes on,
// its region cannot be deregistered (quiet), and a queue pair that has failed does not flush it
// (late).

// pushBytes is the payload of wire.OpPushReq: destination address and grant.
const pushBytes = 12

// halveFrom is the length in bytes from which on a READ is shared: below it the two packets cost
// more than half of the copy.
const halveFrom = 64 << 10

// idlePasses is how many passes without a copy at either end take back the last share: a few us, in
// which a peer that polls would have begun it. The last busyPasses of them look whether the peer
// copies: a look takes the flag's cache line from it, and mostly its response comes before.
const (
	idlePasses = 32
	busyPasses = 16
)

// askPush asks the peer to push what this device does not read of the READ at index sent. It
// returns false if this device has to read that too.
func (q *queuePair) askPush(w *sendWork, e *sendEntry) bool {
	from, to := w.pushed(e)
	list := q.list(q.sent)
	dst, ok := q.target(list, from, to-from)
	if !ok {
		return false // deregistered since the request was posted
	}
	l := q.link.(wire.PushLink)
	grant, ok := l.Grant()
	if !ok {
		return false
	}
	body := binary.LittleEndian.AppendUint64(q.d.operands[:0], mem.AddrOf(dst))
	body = binary.LittleEndian.AppendUint32(body, grant)
	if !q.request(wire.OpPushReq, w, from, uint64(len(dst)), body) {
		l.Return(grant)
		return false
	}
	if invariant.Enabled {
		q.d.inv.pushes[list[0].addr]++
	}
	if q.pushing++; q.pushing == 1 {
		q.d.askers = append(q.d.askers, q)
	}
	w.push = grant
	if w.share = !q.d.alone(); w.share {
		q.shares++
		q.reads()
	}
	return true
}

// pushed is the part of a READ that the peer is to push: what this device does not.
func (w *sendWork) pushed(e *sendEntry) (from, to uint64) {
	if w.lo > 0 {
		return 0, w.lo
	}
	return w.upto, uint64(e.length)
}

// part is the part of a READ of n bytes that this device copies itself; the peer is to push the
// rest. Of a long one the lower rank copies the first half, in both directions: so a buffer that is
// used again, or sent back, stays in the caches where it is.
func (q *queuePair) part(w *sendWork, n uint64) (lo, upto uint64) {
	l, ok := q.link.(wire.PushLink)
	switch {
	case !ok || w.nsge != 1 || !l.CanPush():
		return 0, n
	case q.d.alone():
		if q.dev != nil {
			return 0, 0
		}
		return 0, n
	case n < halveFrom || !l.Attended():
		return 0, n
	case l.Upper():
		return n / 2, n
	}
	return 0, n - n/2
}

// endPush ends the push of request i.
func (q *queuePair) endPush(i uint32) {
	w := q.work(i)
	if invariant.Enabled {
		q.d.inv.pushEnds(q.list(i)[0].addr)
	}
	if q.pushing--; q.pushing == 0 {
		q.d.askers = slices.DeleteFunc(q.d.askers, func(o *queuePair) bool { return o == q })
	}
	w.push = 0
	if w.share {
		q.shares--
		q.idle = 0
	}
}

// takeBack has this device read the newest share itself, and the last one only if the peer does not
// seem to push it: pushes are made in their order.
func (q *queuePair) takeBack() {
	l, ok := q.link.(wire.PushLink)
	if !ok || q.shares == 0 {
		return
	}
	if q.idle++; q.shares == 1 && q.idle < idlePasses {
		if q.idle >= idlePasses-busyPasses && l.Busy() {
			q.idle = 0
		}
		return
	}
	for k := q.rdq.len() - 1; k >= 0; k-- {
		if a := q.rdq.at(k); q.open(a) && q.work(a.index).share {
			q.takeShare(a, l)
			return
		}
	}
}

// copies reports whether a QP of Device.readers has something to do now: it has not while its peer,
// which has the rest, is in the middle of a copy. The peer may be stopped there for any time.
func (q *queuePair) copies() bool {
	l, ok := q.link.(wire.PushLink)
	return !ok || q.mreads.len() > 0 || !l.Busy()
}

// open reports whether the peer is to push what is awaited.
func (q *queuePair) open(a *awaited) bool {
	return a.taken == 0 && q.work(a.index).push != 0
}

// takeShare has this device read a share itself, if the peer is not in the middle of it: a later
// call then does.
func (q *queuePair) takeShare(a *awaited, l wire.PushLink) {
	if q.revoke(a, l) {
		a.taken = q.work(a.index).push
		q.endPush(a.index)
		q.readRest(a.index)
	}
}

// revoke revokes the grant of an open push, and reports whether the peer writes no more for it.
func (q *queuePair) revoke(a *awaited, l wire.PushLink) bool {
	if !a.revoked {
		a.revoked, a.chunk = true, l.Revoke(q.work(a.index).push)
	}
	return !l.Writes(a.chunk)
}

// readRest has this device read what the peer was to push of READ i.
func (q *queuePair) readRest(i uint32) {
	e, w := &q.sq[i&q.mask], q.work(i)
	from, to := w.pushed(e)
	switch {
	case e.status != 0: // its own half has failed
		q.readEnded(e, i)
		return
	case e.flags&entryHalves != 0: // its own half is not read yet, or in part: all from the start
		e.flags &^= entryHalves
		from, to = 0, uint64(e.length)
	default:
		q.mreads.push(i)
	}
	w.off, w.upto = from, to
	q.reads()
}

// quiet ends the pushes to the region of that key, and reports whether no peer is in the middle of
// one.
func (d *Device) quiet(key uint32) bool {
	quiet := true
	for k := len(d.askers) - 1; k >= 0; k-- { // from the last on, since what ends its last push goes
		quiet = d.askers[k].endPushesTo(key) && quiet
	}
	for _, f := range d.late {
		quiet = quiet && !(f.q.late == f && slices.Contains(f.keys, key) && f.writes())
	}
	return quiet
}

// endPushesTo is quiet for one queue pair. What is no share is read by this device when the peer
// has refused it.
func (q *queuePair) endPushesTo(key uint32) bool {
	quiet, l := true, q.link.(wire.PushLink)
	for k := range q.rdq.len() {
		a := q.rdq.at(k)
		if !q.open(a) || q.list(a.index)[0].lkey != key {
			continue
		}
		if !q.revoke(a, l) {
			quiet = false
		} else if q.work(a.index).share {
			q.takeShare(a, l)
		}
	}
	return quiet
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
	peer, can := q.link.Memory().(wire.RemoteWriter)
	switch {
	case !ok:
		r.status = uint8(verbs.WCRemAccessErr) // deregistered meanwhile: a READ will fail too
	case !can:
		r.status = uint8(verbs.WCRemOpErr)
	default:
		r.status = uint8(peer.Write(src, r.value+r.off, r.key))
	}
	r.off += uint64(len(src))
	return r.off == r.total || r.status != 0
}

// recvPushResp receives the end of a push.
func (q *queuePair) recvPushResp(l wire.Link, h *wire.Header) {
	if q.wasTaken(h) {
		return
	}
	e, w, i := q.answered(l, h, wire.OpPushResp)
	if e == nil {
		return
	}
	p := q.link.(wire.PushLink)
	p.Return(w.push)
	q.endPush(i)
	from, to := w.pushed(e)
	_, ok := q.target(q.list(i), from, to-from)
	switch {
	case h.Status != uint8(verbs.WCSuccess):
		q.readInstead(i, verbs.WCStatus(h.Status))
		return
	case !ok:
		q.readFails(e, verbs.WCLocProtErr)
	default:
		q.d.pushed++
	}
	q.gotAnswer(e)
}

// wasTaken receives the end of a push that was taken back. The READ has ended, or will when it was
// read.
func (q *queuePair) wasTaken(h *wire.Header) bool {
	if q.state != verbs.QPSRTS || q.rdq.len() == 0 || q.rdq.front().taken == 0 || q.rdq.front().index != h.PSN-q.psn {
		return false
	}
	q.link.(wire.PushLink).Return(q.rdq.front().taken)
	q.ackTo(q.rdq.front().index + 1)
	q.rdq.pop()
	q.proceed()
	return true
}

// readInstead reads what the peer could not push. If the data is not accessible the READ fails too.
func (q *queuePair) readInstead(i uint32, why verbs.WCStatus) {
	if l, ok := q.link.(wire.PushLink); ok && why == verbs.WCRemOpErr {
		l.CannotPush()
	}
	q.rdq.pop()
	q.ackTo(i + 1)
	q.readRest(i)
	q.proceed()
}
