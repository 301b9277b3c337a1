//go:build invariants

package soft

import (
	"slices"

	"github.com/tagmatch/tagmatch/internal/invariant"
	"github.com/tagmatch/tagmatch/verbs"
)

// sendChecks follow the requests of one send queue: each completes at most once, if it is signalled
// or fails, and its slot is freed once.
type sendChecks struct {
	slots map[uint32]*sendCheck // by index, until reclaimed
	last  uint32                // one above the newest signalled request that has completed
}

// sendCheck is a posted request.
type sendCheck struct {
	wrid     uint64
	signaled bool
	reported bool  // has a completion
	writes   []sge // destinations of its response, until it ends
}

// sendChecks returns those of a queue pair.
func (r *requester) sendChecks() *sendChecks {
	s := r.q.d.inv.sends[r.q]
	if s == nil {
		s = &sendChecks{slots: map[uint32]*sendCheck{}}
		r.q.d.inv.sends[r.q] = s
	}
	return s
}

// checkPosted records request posted, which is in the ring, before posted is increased. writes are
// the destinations of its response.
func (r *requester) checkPosted(writes []sge) {
	s, e := r.sendChecks(), &r.sq[r.posted&r.mask]
	depth := r.depth
	if r.q.dev != nil {
		depth = uint32(len(r.sq))
	}
	invariant.Check(s.slots[r.posted] == nil && len(s.slots) < int(depth), "once",
		"request %d of QP %d takes a slot while all %d are in use", r.posted, r.q.num, depth)
	c := &sendCheck{wrid: e.wrid, signaled: e.flags&entrySignaled != 0}
	c.writes = append(c.writes, writes...)
	r.q.d.inv.opens(c.writes)
	s.slots[r.posted] = c
}

// checkEnded records the end of request i; reported: with a completion of that status.
func (r *requester) checkEnded(i uint32, reported bool, status verbs.WCStatus) {
	s := r.sendChecks()
	c := s.slots[i]
	invariant.Check(c != nil, "once", "request %d of QP %d ends, which is not under way", i, r.q.num)
	r.q.d.inv.closes(c.writes)
	c.writes = nil
	if !reported {
		invariant.Check(!c.signaled, "once", "signalled request %d of QP %d ends without a completion", i, r.q.num)
		return
	}
	invariant.Check(!c.reported, "once", "request %d of QP %d, wr_id %#x, completes twice", i, r.q.num, c.wrid)
	invariant.Check(c.signaled || status != verbs.WCSuccess, "once", "unsignalled request %d of QP %d completes with success", i, r.q.num)
	c.reported = true
	if c.signaled {
		invariant.Check(int32(i-s.last) >= 0, "order", "request %d of QP %d completes after request %d", i, r.q.num, s.last-1)
		s.last = i + 1
	}
}

// checkReclaimed checks that the slots from old up to reclaimed may have become free.
func (r *requester) checkReclaimed(old uint32) {
	s := r.sendChecks()
	for i := old; i != r.reclaimed; i++ {
		c := s.slots[i]
		invariant.Check(c != nil, "once", "slot of request %d of QP %d is reclaimed twice", i, r.q.num)
		invariant.Check(c.reported || !c.signaled, "order", "slot of request %d of QP %d is reclaimed before its completion", i, r.q.num)
		r.q.d.inv.closes(c.writes)
		delete(s.slots, i)
	}
}

// checkCursors checks the invariant of requester, which does not hold within a flush.
func (r *requester) checkCursors() {
	a, b, c := r.done-r.reclaimed, r.sent-r.reclaimed, r.posted-r.reclaimed
	invariant.Check(a <= b && b <= c && c <= uint32(len(r.sq)), "order",
		"send queue of QP %d: reclaimed %d, done %d, sent %d, posted %d, %d slots", r.q.num, r.reclaimed, r.done, r.sent, r.posted, len(r.sq))
	if r.q.state == verbs.QPSRTS && r.q.link != nil {
		r.q.checkShares()
	}
}

// checkShares checks the number of pushes that may be taken back: while there are some, the QP is
// polled for that.
func (r *reader) checkShares() {
	n := 0
	for k := range r.rdq.len() {
		if a := r.rdq.at(k); r.open(a) && r.q.work(a.index).share {
			n++
		}
	}
	invariant.Check(n == r.shares, "order", "QP %d counts %d pushes that may be taken back, of %d", r.q.num, r.shares, n)
}

// checkReset records that a queue pair is reset, which ends all requests under way.
func (q *queuePair) checkReset() {
	if s := q.d.inv.sends[q]; s != nil {
		for _, r := range s.slots {
			q.d.inv.closes(r.writes)
		}
		delete(q.d.inv.sends, q)
	}
	switch {
	case q.srq == nil:
		q.rq.checkCleared()
	case q.tm != nil:
		q.checkAllEnded()
	case q.rx.active && q.rx.hasWR:
		q.rq.checkDone(q.rx.wrid) // without a completion
	}
}

// recvCheck is a posted receive.
type recvCheck struct{ writes []sge }

// checkPosted records a receive that was posted.
func (q *recvQueue) checkPosted(wrid uint64, list []sge) {
	c := q.d.inv
	m := c.recvs[q]
	if m == nil {
		m = map[uint64][]recvCheck{}
		c.recvs[q] = m
	}
	r := recvCheck{slices.Clone(list)}
	c.opens(r.writes)
	m[wrid] = append(m[wrid], r)
}

// checkPushed records a completion of push: it may be that of a posted receive.
func (c *compQueue) checkPushed(wc *verbs.WC, f frees) {
	if f.tm != nil {
		f.tm.checkMade(wc, f.hnd)
		return
	}
	if wc.Opcode&verbs.WCRecv == 0 || wc.Flags&verbs.WCFlagTMMatch != 0 {
		return
	}
	q := c.d.qps[wc.QPNum&qpIndexMask]
	q.rq.checkDone(wc.WRID)
	if q.tm != nil {
		q.tm.checkCutShort(q, wc.Status)
	}
}

// checkAllEnded checks, when q has failed or is reset, that every receive that its messages have
// taken has completed. Otherwise the SRQ would have lost a receive.
func (q *queuePair) checkAllEnded() {
	open, held := 0, 0
	for _, list := range q.d.inv.recvs[q.rq] {
		open += len(list)
	}
	for _, o := range q.d.qps {
		if o != nil && o.rq == q.rq && o.rx.active && o.rx.hasWR {
			held++
		}
	}
	invariant.Check(open == int(q.rq.posted())+held, "V12", "%d receives have no completion, %d are posted and %d have a message under way: QP %d has lost some",
		open, q.rq.posted(), held, q.num)
	if q.tm != nil {
		q.tm.checkAllEnded(q)
	}
}

// checkDone records the completion of a receive. Receives with the same WRID are counted.
func (q *recvQueue) checkDone(wrid uint64) {
	list := q.d.inv.recvs[q][wrid]
	invariant.Check(len(list) > 0, "once", "a receive with wr_id %#x completes more often than it was posted", wrid)
	q.d.inv.closes(list[0].writes)
	if list = list[1:]; len(list) == 0 {
		delete(q.d.inv.recvs[q], wrid)
	} else {
		q.d.inv.recvs[q][wrid] = list
	}
	invariant.Check(q.tail-q.head <= q.maxWR, "order", "receive queue: taken %d, posted %d", q.head, q.tail)
}

// checkCleared records that all posted receives are dropped.
func (q *recvQueue) checkCleared() {
	for _, list := range q.d.inv.recvs[q] {
		for _, r := range list {
			q.d.inv.closes(r.writes)
		}
	}
	delete(q.d.inv.recvs, q)
}
