//go:build invariants

package soft

import (
	"slices"

	"github.com/tagmatch/tagmatch/internal/invariant"
	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/taglist"
)

// tagChecks are what a device knows of the receives in a tag list: the rest is in package taglist.
type tagChecks struct {
	partial map[*queuePair]bool   // an unexpected message, counted as such, is under way there
	bufs    map[uint32][]sge      // by handle: buffers that the device may write to
	by      map[uint32]*queuePair // by handle: who has matched receives that have not ended
}

// startChecks begins the checks of a new tag queue.
func (t *tagQueue) startChecks() {
	t.d.inv.tags[t] = &tagChecks{partial: map[*queuePair]bool{}, bufs: map[uint32][]sge{}, by: map[uint32]*queuePair{}}
}

// checkDestroyed ends them.
func (t *tagQueue) checkDestroyed() {
	t.checkAllEnded(nil)
	for hnd := range t.d.inv.tags[t].bufs {
		t.checkClosed(hnd)
	}
	delete(t.d.inv.tags, t)
}

// checkClosed records that nothing can be written to an entry's buffer any more.
func (t *tagQueue) checkClosed(hnd uint32) {
	c := t.d.inv.tags[t]
	t.d.inv.closes(c.bufs[hnd])
	delete(c.bufs, hnd)
}

// checkPosted records the post of a list operation.
func (t *tagQueue) checkPosted(o *taglist.Op) {
	if b := o.Buf(); b.Length > 0 {
		list := []sge{{b.Addr, b.Length, b.LKey}}
		t.d.inv.tags[t].bufs[o.Handle()] = list
		t.d.inv.opens(list)
	}
}

// checkExecuted records the outcome of a list operation.
func (t *tagQueue) checkExecuted(o *taglist.Op, wc *verbs.WC) {
	if o.Opcode == verbs.WRTagDel && wc.Status == verbs.WCSuccess {
		t.checkClosed(o.Handle())
	}
}

// checkUnexpected begins an arrival, and returns the function that ends it, when the device has
// received the message, or its first packet, or had no buffer for it. A message is unexpected when
// it takes an untagged buffer, unless its completion later says that it was cut short.
func (t *tagQueue) checkUnexpected(q *queuePair) (done func()) {
	head := q.rq.head
	return func() {
		if q.rq.head != head && q.connected() {
			t.list.CheckCount(1)
			t.d.inv.tags[t].partial[q] = q.rx.active
		}
	}
}

// checkCutShort records that an untagged receive completes for a message of q.
func (t *tagQueue) checkCutShort(q *queuePair, status verbs.WCStatus) {
	c := t.d.inv.tags[t]
	if c.partial[q] && status != verbs.WCSuccess {
		t.list.CheckCount(-1)
	}
	delete(c.partial, q)
}

// checkMatched records that a message of q has matched an entry.
func (t *tagQueue) checkMatched(q *queuePair, hnd uint32) { t.d.inv.tags[t].by[hnd] = q }

// checkMade records a completion of an operation on the list, or of an entry.
func (t *tagQueue) checkMade(wc *verbs.WC, hnd uint32) {
	if wc.Opcode == verbs.WCTMRecv {
		t.list.CheckEnd(wc.WRID, hnd)
		delete(t.d.inv.tags[t].by, hnd)
		t.checkClosed(hnd)
	}
}

// checkAllEnded checks, when q has failed or is reset, or with nil when the queue is destroyed,
// that each receive that q has matched has ended, or that its completion is delayed (tagFaults).
func (t *tagQueue) checkAllEnded(q *queuePair) {
	for hnd, by := range t.d.inv.tags[t].by {
		if q != nil && by != q {
			continue
		}
		late := t.faults != nil && slices.ContainsFunc(t.faults.later, func(it tagLater) bool { return it.q == nil && it.hnd == hnd })
		invariant.Check(late || t.d.nic.owes(t, hnd), "V12", "the receive with handle %#x was matched by QP %d, which is gone, and never ends", hnd, by.num)
	}
}

// owes reports that a receive does not complete (hook.Habits.Tags).
func (n *nic) owes(t *tagQueue, hnd uint32) bool {
	return n != nil && slices.ContainsFunc(n.owed, func(o owing) bool { return o.q.tm == t && o.hnd == hnd })
}
