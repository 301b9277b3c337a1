package soft

import (
	"encoding/binary"
	"slices"

	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/mem"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/wire"
)

// A push replaces the RDMA READ of this device on shared memory, or half of it: the peer, which has
// the data, writes it into this process's memory. Requests, responses and their order are those of
// a READ by packets. The device asks for pushes
//   - when it works by itself (Device.Async), so that the copy of a rendezvous does not hold up the
//     program, which computes on the same processor;
//   - while the peer polls, for one half of each long READ but in exchanges, so both ends copy: of
//     these, the shares, a device without reads of its own takes back those that the peer has not
//     begun (takeBack), so that a READ never waits for a peer that computes.
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
func (r *reader) askPush(w *sendWork, e *sendEntry) bool {
	from, to := w.pushed(e)
	list := r.q.list(r.q.sent)
	dst, ok := r.q.target(list, from, to-from)
	if !ok || r.q.d.regions.Apart(dst) { // not ok: deregistered since the request was posted
		return false
	}
	l := r.q.link.(wire.PushLink)
	grant, ok := l.Grant()
	if !ok {
		return false
	}
	body := binary.LittleEndian.AppendUint64(r.q.d.pushReq[:0], mem.AddrOf(dst))
	body = binary.LittleEndian.AppendUint32(body, grant)
	if !r.request(wire.OpPushReq, w, from, uint64(len(dst)), body) {
		l.Return(grant)
		return false
	}
	r.q.d.inv.pushBegins(list[0].addr)
	if r.pushing++; r.pushing == 1 {
		r.q.d.askers = append(r.q.d.askers, r)
	}
	w.push = grant
	if w.share = !r.q.d.alone(); w.share {
		r.shares++
		r.reads()
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
func (r *reader) part(w *sendWork, n uint64) (lo, upto uint64) {
	l, ok := r.q.link.(wire.PushLink)
	switch {
	case !ok || w.nsge != 1 || !l.CanPush():
		return 0, n
	case r.q.d.alone():
		if r.q.dev != nil {
			return 0, 0
		}
		return 0, n
	case n < halveFrom || !l.Attended() || r.exchanges(n):
		return 0, n
	case l.Upper():
		return n / 2, n
	}
	return 0, n - n/2
}

// exchanges reports whether this device reads n bytes alone, as one direction of an exchange: it
// has memory that peers may read, as a rank has while it sends. Both processors copy then anyway,
// and halves would take each of them two system calls instead of one. Beside another READ a half
// takes none of its own (copyMany).
func (r *reader) exchanges(n uint64) bool {
	return n <= wire.MaxChunk && r.underWay() == 0 && r.q.d.regions.Readable() > 0
}

// endPush ends the push of request i.
func (r *reader) endPush(i uint32) {
	w := r.q.work(i)
	r.q.d.inv.pushEnds(r.q.list(i)[0].addr)
	if r.pushing--; r.pushing == 0 {
		r.q.d.askers = slices.DeleteFunc(r.q.d.askers, func(o *reader) bool { return o == r })
	}
	w.push = 0
	if w.share {
		r.shares--
		r.idle = 0
	}
}

// takeBack has this device read the newest share itself, and the last one only if the peer does not
// seem to push it: pushes are made in their order.
func (r *reader) takeBack() {
	l, ok := r.q.link.(wire.PushLink)
	if !ok || r.shares == 0 {
		return
	}
	if r.idle++; r.shares == 1 && r.idle < idlePasses {
		if r.idle >= idlePasses-busyPasses && l.Busy() {
			r.idle = 0
		}
		return
	}
	for k := r.rdq.len() - 1; k >= 0; k-- {
		if a := r.rdq.at(k); r.open(a) && r.q.work(a.index).share {
			r.takeShare(a, l)
			return
		}
	}
}

// copies reports whether one of Device.readers has something to do now: it has not while its peer,
// which has the rest, is in the middle of a copy. The peer may be stopped there for any time.
func (r *reader) copies() bool {
	l, ok := r.q.link.(wire.PushLink)
	return !ok || r.mreads.len() > 0 || !l.Busy()
}

// open reports whether the peer is to push what is awaited.
func (r *reader) open(a *awaited) bool {
	return a.taken == 0 && r.q.work(a.index).push != 0
}

// takeShare has this device read a share itself, if the peer is not in the middle of it: a later
// call then does.
func (r *reader) takeShare(a *awaited, l wire.PushLink) {
	if r.revoke(a, l) {
		a.taken = r.q.work(a.index).push
		r.endPush(a.index)
		r.readRest(a.index)
	}
}

// revoke revokes the grant of an open push, and reports whether the peer writes no more for it.
func (r *reader) revoke(a *awaited, l wire.PushLink) bool {
	if !a.revoked {
		a.revoked, a.chunk = true, l.Revoke(r.q.work(a.index).push)
	}
	return !l.Writes(a.chunk)
}

// readRest has this device read what the peer was to push of READ i.
func (r *reader) readRest(i uint32) {
	e, w := r.q.entry(i), r.q.work(i)
	from, to := w.pushed(e)
	switch {
	case e.status != 0: // its own half has failed
		r.readEnded(e, i)
		return
	case e.flags&entryHalves != 0: // its own half is not read yet, or in part: all from the start
		e.flags &^= entryHalves
		from, to = 0, uint64(e.length)
	default:
		r.mreads.push(i)
	}
	w.off, w.upto = from, to
	r.reads()
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
func (r *reader) endPushesTo(key uint32) bool {
	quiet, l := true, r.q.link.(wire.PushLink)
	for k := range r.rdq.len() {
		a := r.rdq.at(k)
		if !r.open(a) || r.q.list(a.index)[0].lkey != key {
			continue
		}
		if !r.revoke(a, l) {
			quiet = false
		} else if r.q.work(a.index).share {
			r.takeShare(a, l)
		}
	}
	return quiet
}

// recvPushResp receives the end of a push.
func (r *reader) recvPushResp(l wire.Link, h *wire.Header) {
	if r.wasTaken(h) {
		return
	}
	e, w, i := r.answered(l, h, wire.OpPushResp)
	if e == nil {
		return
	}
	p := r.q.link.(wire.PushLink)
	p.Return(w.push)
	r.endPush(i)
	from, to := w.pushed(e)
	_, ok := r.q.target(r.q.list(i), from, to-from)
	switch {
	case h.Status != uint8(verbs.WCSuccess):
		r.readInstead(i, verbs.WCStatus(h.Status))
		return
	case !ok:
		r.readFails(e, verbs.WCLocProtErr)
	default:
		r.q.d.pushed++
	}
	r.gotAnswer(e)
}

// wasTaken receives the end of a push that was taken back. The READ has ended, or will when it was
// read.
func (r *reader) wasTaken(h *wire.Header) bool {
	if r.q.state != verbs.QPSRTS || r.rdq.len() == 0 || r.rdq.front().taken == 0 || r.rdq.front().index != h.PSN-r.q.psn {
		return false
	}
	r.q.link.(wire.PushLink).Return(r.rdq.front().taken)
	r.q.ackTo(r.rdq.front().index + 1)
	r.rdq.pop()
	r.q.proceed()
	return true
}

// readInstead reads what the peer could not push. If the data is not accessible the READ fails too.
func (r *reader) readInstead(i uint32, why verbs.WCStatus) {
	if l, ok := r.q.link.(wire.PushLink); ok && why == verbs.WCRemOpErr {
		l.CannotPush()
	}
	r.rdq.pop()
	r.q.ackTo(i + 1)
	r.readRest(i)
	r.q.proceed()
}
