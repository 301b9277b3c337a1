package links

import (
	"github.com/tagmatch/tagmatch/verbs"
)

// Sent handles the completion of a send request. The first error status ends the link, with all
// outstanding requests; except that a read from or to memory that was deregistered, or is gone,
// fails alone, where that was granted (verbs.QPInitAttr.ReadFaults).
func (l *Links) Sent(wc *verbs.WC) {
	rank := l.byQPN.Find(uint64(wc.QPNum))
	if rank < 0 {
		return
	}
	p := l.peers[rank]
	if wc.Status == verbs.WCSuccess {
		l.completed(p, wc.WRID, nil)
		return
	}
	if alone := l.OfRead(wc.Status); alone != nil && wc.WRID>>KindShift<<KindShift == kindRead {
		l.completed(p, wc.WRID, alone)
		return
	}
	l.loseBy(p, wc.Status)
	if seq := uint32(wc.WRID); seq-p.done >= p.posted-p.done {
		l.release(p, wc.WRID, p.err) // a later read has succeeded, which overtakes messages
		return
	}
	l.completed(p, wc.WRID, p.err)
}

// completed frees the slots of the send queue up to a request's, and its resources; failure is the
// error of the request, nil if it succeeded. After an error each request has a completion that was
// not known to have succeeded, in their order.
func (l *Links) completed(p *peer, wrid uint64, failure error) {
	p.checkCompleted(uint32(wrid))
	n := uint32(wrid) + 1 - p.done
	p.done += n
	if wrid>>KindShift<<KindShift == kindRead {
		l.budget.behind += n - 1
		n = 1
	}
	l.budget.returned(n)
	l.release(p, wrid, failure)
}

// release frees what a request that has ended used beside its slot in the send queue. failure is
// its error, nil if it succeeded.
func (l *Links) release(p *peer, wrid uint64, failure error) {
	switch wrid >> KindShift << KindShift {
	case kindBounce:
		l.bounce.Put(uint32(wrid >> slotShift & slotMask))
	case kindRead:
		l.readDone(p, wrid, failure)
	}
}
