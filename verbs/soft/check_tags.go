package soft

import (
	"slices"

	"github.com/tagmatch/tagmatch/internal/invariant"
	"github.com/tagmatch/tagmatch/verbs"
)

// tagChecks are a model of a tag queue: the list and the counts as in TMO 5.2, where matching
// searches the list from its front, and for each handle the completions that are still to be
// polled.
type tagChecks struct {
	h, s    uint16              // H and S of TMO 5.1
	partial map[*queuePair]bool // an unexpected message, counted in h, is under way there
	syncs   int                 // SYNCs with a count, for DropSync

	recs  map[uint32]*tagCheck // by handle
	order []uint32             // handles in the list, oldest first
	free  []uint32             // free slots, in the order in which they are used again
	busy  string               // the operation or arrival under way (checkAtomic)
	ops   uint32               // operations and arrivals so far

	deleting bool // a DEL is being executed and has not removed its entry yet
}

// tagCheck is an entry, from ADD until it has ended and its slot is free.
type tagCheck struct {
	tag, mask uint64
	buf       []sge
	by        *queuePair // matched: that received the message

	inserted bool // the ADD has taken effect
	listed   bool // in the list
	live     bool // may match
	matched  bool
	ended    bool // its terminal completion was made, or it was removed

	// Completions that are still to be polled.
	owesEnd bool   // the terminal one, unless an unsignalled DEL replaces it
	owesAdd bool   // that of the ADD
	dels    uint32 // those of DELs
	freed   bool   // its slot is free
	misused bool   // the program has broken a rule, so that expectCQE of TMO 3.4 is wrong
}

// maxUntagged is the most untagged buffers with which the counts cannot be mistaken (V15).
const maxUntagged = 1 << 14

// startChecks makes the model of a new tag queue.
func (t *tagQueue) startChecks() {
	c := &tagChecks{h: t.cfg.InitialCount, s: t.cfg.InitialCount, partial: map[*queuePair]bool{}, recs: map[uint32]*tagCheck{}}
	for i := range t.slots {
		c.free = append(c.free, uint32(i))
	}
	t.d.inv.tags[t] = c
}

// checkDestroyed deletes the model.
func (t *tagQueue) checkDestroyed() {
	t.checkAllEnded(nil)
	for _, r := range t.d.inv.tags[t].recs {
		t.checkClosed(r)
	}
	delete(t.d.inv.tags, t)
}

// checkClosed is called when nothing can be written to an entry's buffer any more.
func (t *tagQueue) checkClosed(r *tagCheck) {
	t.d.inv.closes(r.buf)
	r.buf = nil
}

// checkAtomic begins an operation or an arrival, which must take effect as a whole (V10), and
// returns the function that ends it.
func (t *tagQueue) checkAtomic(what string) (done func()) {
	c := t.d.inv.tags[t]
	invariant.Check(c.busy == "", "V10", "%s begins inside %s", what, c.busy)
	c.busy = what
	return func() {
		c.busy = ""
		if r := recover(); r != nil {
			panic(r) // checkNow would only find that the operation is incomplete
		}
		t.checkNow()
	}
}

// checkOp is checkAtomic for a list operation.
func (t *tagQueue) checkOp(o *tagOp) (done func()) {
	done = t.checkAtomic("a list operation")
	t.d.inv.tags[t].deleting = o.op == verbs.WRTagDel && !o.stale
	return done
}

// checkAdded is called when an ADD has got its handle.
func (t *tagQueue) checkAdded(o *tagOp, signaled bool) {
	c := t.d.inv.tags[t]
	invariant.Check(c.recs[o.hnd] == nil, "V13", "handle %#x is given out while completions of its last use are owed", o.hnd)
	slot := o.hnd & (1<<t.slotBits - 1)
	invariant.Check(len(c.free) > 1, "V14", "an ADD takes the last free slot: more than %d tags are live", len(t.slots)-1)
	invariant.Check(c.free[0] == slot, "V13", "an ADD takes slot %d, %d was free first (TMO 3.4)", slot, c.free[0])
	c.free = c.free[1:]
	r := &tagCheck{tag: o.tag, mask: o.mask, owesEnd: true, owesAdd: signaled}
	if o.buf.length > 0 {
		r.buf = []sge{o.buf}
	}
	t.d.inv.opens(r.buf)
	c.recs[o.hnd] = r
}

// checkDel is called when a DEL of a handle in use is posted, before its slot is released.
func (t *tagQueue) checkDel(hnd uint32, signaled bool) {
	r := t.d.inv.tags[t].recs[hnd]
	switch {
	case signaled:
		r.dels++
	case r.owesEnd:
		r.owesEnd = false
	default:
		r.misused = true
	}
}

// checkPostedOp is called when an operation was posted.
func (t *tagQueue) checkPostedOp() {
	used := t.posted - t.tail
	invariant.Check(used <= t.maxOps, "V14", "%d list operations are outstanding, MaxOps is %d", used, t.maxOps)
	invariant.Check(int32(t.posted-t.signaled) >= 0, "order", "list operations: %d posted, the newest signalled is %d", t.posted, t.signaled)
}

// checkInserted is called when an ADD takes effect.
func (t *tagQueue) checkInserted(hnd uint32) {
	c := t.d.inv.tags[t]
	r := c.recs[hnd]
	invariant.Check(r != nil && !r.inserted, "once", "the ADD of handle %#x takes effect twice", hnd)
	r.inserted, r.listed = true, true
	c.order = append(c.order, hnd)
}

// checkRemoved is called when a DEL takes effect; ok: its completion has success.
func (t *tagQueue) checkRemoved(hnd uint32, ok bool) {
	c := t.d.inv.tags[t]
	c.deleting = false
	r := c.recs[hnd]
	invariant.Check(ok == (r != nil && r.listed), "tags", "the DEL of handle %#x has the outcome %v", hnd, ok)
	if !ok {
		return
	}
	t.checkUnlisted(hnd, r)
	r.ended = true
	t.checkClosed(r)
	t.checkForget(hnd, r)
}

// checkUnlisted removes an entry from the list.
func (t *tagQueue) checkUnlisted(hnd uint32, r *tagCheck) {
	c := t.d.inv.tags[t]
	r.listed = false
	c.order = slices.DeleteFunc(c.order, func(h uint32) bool { return h == hnd })
}

// checkActivated is called when the device makes all entries live. Whether it must do that is found
// out by checkTold.
func (t *tagQueue) checkActivated() {
	invariant.Check(!t.d.inv.tags[t].deleting, "V10", "entries become live before the DEL that takes effect has removed its own")
}

// checkTold is called when an operation has taken effect. With TM_SYNC it has set S, and all
// entries become live if S equals H (rules 1 to 4 of TMO 5.2).
func (t *tagQueue) checkTold(o *tagOp) {
	c := t.d.inv.tags[t]
	if o.flags&verbs.OpsTMSync != 0 {
		lost := false
		if t.cfg.DropSync > 0 && o.op == verbs.WRTagSync {
			c.syncs++
			lost = c.syncs%t.cfg.DropSync == 0
		}
		if !lost {
			c.s = uint16(o.count)
		}
	}
	if c.s != c.h {
		return
	}
	for _, h := range c.order {
		c.recs[h].live = true
	}
}

// checkUnexpected is called when a message arrives, and the function that it returns when the
// device has received the message, or its first packet, or had no buffer for it. A message is
// unexpected when it takes an untagged buffer, unless its completion later says that it was cut
// short.
func (t *tagQueue) checkUnexpected(q *queuePair) (done func()) {
	c, head := t.d.inv.tags[t], q.rq.head
	return func() {
		if q.rq.head != head && q.connected() {
			c.h++
			c.partial[q] = q.rx.active
		}
	}
}

// checkCutShort is called when an untagged receive completes for a message of q.
func (t *tagQueue) checkCutShort(q *queuePair, status verbs.WCStatus) {
	c := t.d.inv.tags[t]
	if c.partial[q] && status != verbs.WCSuccess {
		c.h--
	}
	delete(c.partial, q)
}

// checkAllEnded is called when q has failed or is reset, or with nil when the queue is destroyed:
// each receive that q has matched has ended, or its completion is delayed (hook.TM).
func (t *tagQueue) checkAllEnded(q *queuePair) {
	for hnd, r := range t.d.inv.tags[t].recs {
		if !r.matched || r.ended || q != nil && r.by != q {
			continue
		}
		late := slices.ContainsFunc(t.later, func(it tagLater) bool { return it.q == nil && it.hnd == hnd })
		invariant.Check(late, "V12", "the receive with handle %#x was matched by QP %d, which is gone, and never ends", hnd, r.by.num)
	}
}

// checkAsleep makes all entries dormant (LiveGoDormant).
func (t *tagQueue) checkAsleep() {
	c := t.d.inv.tags[t]
	for _, h := range c.order {
		c.recs[h].live = false
	}
}

// checkMatch checks rule 5 of TMO 5.2: the oldest live entry that matches gets the message. found
// and hnd are what the device has found.
func (t *tagQueue) checkMatch(q *queuePair, tag uint64, found bool, hnd uint32) {
	c := t.d.inv.tags[t]
	for _, h := range c.order {
		r := c.recs[h]
		if !r.live || tag&r.mask != r.tag {
			continue
		}
		invariant.Check(found && h == hnd, "V2", "a message with tag %#x goes to handle %#x (%v), handle %#x is older", tag, hnd, found, h)
		r.matched, r.by = true, q
		t.checkUnlisted(h, r)
		return
	}
	invariant.Check(!found, "V2", "a message with tag %#x goes to handle %#x, which is not live, not there, or does not match", tag, hnd)
}

// checkMade is called for a completion of an operation on the list, or of an entry.
func (t *tagQueue) checkMade(wc *verbs.WC, hnd uint32) {
	if wc.Opcode != verbs.WCTMRecv {
		return
	}
	c := t.d.inv.tags[t]
	r := c.recs[hnd]
	invariant.Check(r != nil, "V12", "receive %#x ends, whose handle %#x is not in use", wc.WRID, hnd)
	invariant.Check(r.matched && !r.ended, "V12", "receive %#x ends: matched %v, ended before %v", wc.WRID, r.matched, r.ended)
	r.ended = true
	t.checkClosed(r)
	t.checkForget(hnd, r)
}

// checkPolled is called when the program polls a completion, before its slot is released.
func (t *tagQueue) checkPolled(wc *verbs.WC, hnd uint32) {
	r := t.d.inv.tags[t].recs[hnd]
	if r == nil || r.freed {
		return // an unsignalled DEL has replaced it
	}
	switch {
	case wc.Opcode == verbs.WCTMAdd:
		invariant.Check(r.owesAdd, "once", "the ADD of handle %#x completes twice", hnd)
		r.owesAdd = false
	case wc.Opcode == verbs.WCTMDel:
		invariant.Check(r.dels > 0, "once", "a DEL of handle %#x completes twice", hnd)
		r.dels--
		if wc.Status == verbs.WCSuccess {
			r.owesEnd = false
		}
	case r.owesEnd:
		r.owesEnd = false
	default:
		r.misused = true
	}
}

// checkFreed is called when expectCQE of a slot becomes 0.
func (t *tagQueue) checkFreed(hnd uint32) {
	c := t.d.inv.tags[t]
	r := c.recs[hnd]
	invariant.Check(r != nil && !r.freed, "once", "the slot of handle %#x is freed twice", hnd)
	invariant.Check(r.misused || !r.owesEnd && !r.owesAdd && r.dels == 0, "V13",
		"the slot of handle %#x is freed while completions are to be polled: end %v, ADD %v, DEL %d", hnd, r.owesEnd, r.owesAdd, r.dels)
	r.freed = true
	c.free = append(c.free, hnd&(1<<t.slotBits-1))
	t.checkForget(hnd, r)
}

// checkForget deletes an entry that has ended and whose slot is free.
func (t *tagQueue) checkForget(hnd uint32, r *tagCheck) {
	if r.freed && r.ended {
		delete(t.d.inv.tags[t].recs, hnd)
	}
}

// checkNow compares the tag queue with the model: always the counts, and the rest each time for a
// small list and now and then for a large one (invariant.Due).
func (t *tagQueue) checkNow() {
	c := t.d.inv.tags[t]
	invariant.Check(t.h() == c.h && t.c == c.s, "tags", "the device counts %d messages as unexpected and %d of them as handled; %d were, and %d (TMO 5.1)",
		t.h(), t.c, c.h, c.s)
	if c.ops++; !invariant.Due(len(t.slots), c.ops) {
		return
	}
	t.checkFree(c)
	t.checkList(c)
	for hnd, r := range c.recs {
		s := &t.slots[hnd&(1<<t.slotBits-1)]
		if r.freed || r.misused {
			continue
		}
		owed := r.dels
		if r.owesEnd {
			owed++
		}
		if r.owesAdd {
			owed++
		}
		invariant.Check(s.expectCQE == owed, "V13", "handle %#x: the device owes %d completions, the accounts say %d", hnd, owed, s.expectCQE)
	}
}

// checkFree compares the free slots.
func (t *tagQueue) checkFree(c *tagChecks) {
	invariant.Check(int(t.nfree) == len(c.free), "tags", "%d slots are counted as free, %d are", t.nfree, len(c.free))
	at := t.head
	for _, slot := range c.free {
		invariant.Check(t.free[at] == slot && t.slots[slot].expectCQE == 0, "tags", "the ring of free slots has slot %d, expectCQE %d, for slot %d",
			t.free[at], t.slots[slot].expectCQE, slot)
		at = t.next(at)
	}
	used := 0
	for i := range t.slots {
		if t.slots[i].expectCQE > 0 {
			used++
		}
	}
	invariant.Check(used+len(c.free) == len(t.slots), "tags", "%d slots are in use and %d free, of %d", used, len(c.free), len(t.slots))
}

// checkList compares the entries in the list, and which of them are live.
func (t *tagQueue) checkList(c *tagChecks) {
	n := 0
	for _, hnd := range c.order {
		r, s := c.recs[hnd], &t.slots[hnd&(1<<t.slotBits-1)]
		invariant.Check(s.listed && s.hnd == hnd, "tags", "handle %#x is in the list, its slot says %v of handle %#x", hnd, s.listed, s.hnd)
		if s.never {
			continue
		}
		n++
		stamp, ok := t.list.Stamp(s.entry)
		invariant.Check(ok && (stamp < t.limit) == r.live, "tags", "handle %#x: in the list %v, stamp %d, limit %d, live %v", hnd, ok, stamp,
			t.limit, r.live)
	}
	invariant.Check(n == t.list.Len() && t.waiting() == len(c.order), "tags", "%d entries can be matched, %d are listed; the list has %d, %d slots wait",
		n, len(c.order), t.list.Len(), t.waiting())
}

// waiting counts the entries in the list.
func (t *tagQueue) waiting() (n int) {
	for i := range t.slots {
		if t.slots[i].listed {
			n++
		}
	}
	return n
}
