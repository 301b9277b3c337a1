//go:build invariants

package taglist

import (
	"slices"

	"github.com/tagmatch/tagmatch/internal/invariant"
	"github.com/tagmatch/tagmatch/verbs"
)

// checks are a model of a list: the entries and the counts as in TMO 5.2, where matching searches
// the list from its front, and for each handle the completions that are still to be polled.
type checks struct {
	h, s uint16 // H and S of TMO 5.1

	recs  map[uint32]*record // by handle
	order []uint32           // handles in the list, oldest first
	free  []uint32           // free slots, in the order in which they are used again
	busy  string             // the operation or arrival under way
	ops   uint32             // operations and arrivals so far

	deleting bool // a DEL is being executed and has not removed its entry yet
}

// record is an entry, from ADD until it has ended and its slot is free.
type record struct {
	tag, mask uint64

	inserted bool // the ADD has taken effect
	listed   bool // in the list
	live     bool // may match
	matched  bool
	ended    bool // its last completion was made, or it was removed

	// Completions that are still to be polled.
	owesEnd bool   // the last one, unless an unsignalled DEL replaces it
	owesAdd bool   // that of the ADD
	dels    uint32 // those of DELs
	freed   bool   // its slot is free
	misused bool   // the program has broken a rule, so that expectCQE of TMO 3.4 is wrong
}

// start makes the model of a new list.
func (c *checks) start(l *List) {
	*c = checks{h: l.H(), s: l.handled, recs: map[uint32]*record{}}
	for i := range l.slots {
		c.free = append(c.free, uint32(i))
	}
}

// arrival begins an arrival, and returns the function that ends it.
func (c *checks) arrival(l *List) (done func()) {
	c.enter("an arrival")
	return func() {
		if r := recover(); r != nil {
			c.busy = ""
			panic(r) // now would only find that the operation is incomplete
		}
		c.done(l)
	}
}

// begin begins the effect of an operation.
func (c *checks) begin(o *Op) {
	c.enter("a list operation")
	c.deleting = o.Opcode == verbs.WRTagDel && !o.stale
}

// enter begins what must take effect as a whole (V10).
func (c *checks) enter(what string) {
	invariant.Check(c.busy == "", "V10", "%s begins inside %s", what, c.busy)
	c.busy = what
}

// done ends it.
func (c *checks) done(l *List) {
	c.busy = ""
	c.now(l)
}

// added records an ADD that has got its handle.
func (c *checks) added(l *List, o *Op) {
	hnd, slot := o.entry.Handle, l.index(o.entry.Handle)
	invariant.Check(c.recs[hnd] == nil, "V13", "handle %#x is given out while completions of its last use are owed", hnd)
	invariant.Check(len(c.free) > 1, "V14", "an ADD takes the last free slot: more than %d tags are live", len(l.slots)-1)
	invariant.Check(c.free[0] == slot, "V13", "an ADD takes slot %d, %d was free first (TMO 3.4)", slot, c.free[0])
	c.free = c.free[1:]
	c.recs[hnd] = &record{tag: o.tag, mask: o.mask, owesEnd: true, owesAdd: o.isSignaled()}
}

// asked records the post of a DEL of a handle in use, before its slot is released.
func (c *checks) asked(hnd uint32, signaled bool) {
	r := c.recs[hnd]
	switch {
	case signaled:
		r.dels++
	case r.owesEnd:
		r.owesEnd = false
	default:
		r.misused = true
	}
}

// postedOp checks the command queue when an operation was posted.
func (*checks) postedOp(l *List) {
	used := l.posted - l.tail
	invariant.Check(used <= l.maxOps, "V14", "%d list operations are outstanding, MaxOps is %d", used, l.maxOps)
	invariant.Check(int32(l.posted-l.signaled) >= 0, "order", "list operations: %d posted, the newest signalled is %d", l.posted, l.signaled)
}

// inserted records that an ADD takes effect.
func (c *checks) inserted(hnd uint32) {
	r := c.recs[hnd]
	invariant.Check(r != nil && !r.inserted, "once", "the ADD of handle %#x takes effect twice", hnd)
	r.inserted, r.listed = true, true
	c.order = append(c.order, hnd)
}

// removed records that a DEL takes effect; ok: its outcome is success.
func (c *checks) removed(hnd uint32, ok bool) {
	c.deleting = false
	r := c.recs[hnd]
	invariant.Check(ok == (r != nil && r.listed), "tags", "the DEL of handle %#x has the outcome %v", hnd, ok)
	if ok {
		c.unlist(hnd, r)
		r.ended = true
		c.forget(hnd, r)
	}
}

// unlist removes an entry from the list.
func (c *checks) unlist(hnd uint32, r *record) {
	r.listed = false
	c.order = slices.DeleteFunc(c.order, func(h uint32) bool { return h == hnd })
}

// activated checks the moment at which the device makes all entries live. Whether it must do that
// told finds out.
func (c *checks) activated() {
	invariant.Check(!c.deleting, "V10", "entries become live before the DEL that takes effect has removed its own")
}

// told records that an operation has taken effect. With TM_SYNC it has set S, and all entries
// become live if S equals H (rules 1 to 4 of TMO 5.2).
func (c *checks) told(o *Op) {
	if o.Syncs() && !o.Lost {
		c.s = uint16(o.count)
	}
	if c.s != c.h {
		return
	}
	for _, h := range c.order {
		c.recs[h].live = true
	}
}

// count records n more messages that are unexpected.
func (c *checks) count(n int) { c.h += uint16(n) }

// asleep records that all entries become dormant (LiveGoDormant).
func (c *checks) asleep() {
	for _, h := range c.order {
		c.recs[h].live = false
	}
}

// matched checks rule 5 of TMO 5.2: the oldest live entry that matches gets the message. found and
// hnd are what the list has found.
func (c *checks) matched(tag uint64, found bool, hnd uint32) {
	for _, h := range c.order {
		r := c.recs[h]
		if !r.live || tag&r.mask != r.tag {
			continue
		}
		invariant.Check(found && h == hnd, "V2", "a message with tag %#x goes to handle %#x (%v), handle %#x is older", tag, hnd, found, h)
		r.matched = true
		c.unlist(h, r)
		return
	}
	invariant.Check(!found, "V2", "a message with tag %#x goes to handle %#x, which is not live, not there, or does not match", tag, hnd)
}

// end records the last completion of a receive.
func (c *checks) end(wrid uint64, hnd uint32) {
	r := c.recs[hnd]
	invariant.Check(r != nil, "V12", "receive %#x ends, whose handle %#x is not in use", wrid, hnd)
	invariant.Check(r.matched && !r.ended, "V12", "receive %#x ends: matched %v, ended before %v", wrid, r.matched, r.ended)
	r.ended = true
	c.forget(hnd, r)
}

// polled records that the program polls a completion, before its slot is released.
func (c *checks) polled(wc *verbs.WC, hnd uint32) {
	r := c.recs[hnd]
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

// freed records that expectCQE of a slot becomes 0.
func (c *checks) freed(l *List, hnd uint32) {
	r := c.recs[hnd]
	invariant.Check(r != nil && !r.freed, "once", "the slot of handle %#x is freed twice", hnd)
	invariant.Check(r.misused || !r.owesEnd && !r.owesAdd && r.dels == 0, "V13",
		"the slot of handle %#x is freed while completions are to be polled: end %v, ADD %v, DEL %d", hnd, r.owesEnd, r.owesAdd, r.dels)
	r.freed = true
	c.free = append(c.free, l.index(hnd))
	c.forget(hnd, r)
}

// forget deletes an entry that has ended and whose slot is free.
func (c *checks) forget(hnd uint32, r *record) {
	if r.freed && r.ended {
		delete(c.recs, hnd)
	}
}

// now compares the list with the model: always the counts, and the rest each time for a small list
// and now and then for a large one (invariant.Due).
func (c *checks) now(l *List) {
	invariant.Check(l.H() == c.h && l.handled == c.s, "tags", "the device counts %d messages as unexpected and %d of them as handled; %d were, and %d (TMO 5.1)",
		l.H(), l.handled, c.h, c.s)
	if c.ops++; !invariant.Due(len(l.slots), c.ops) {
		return
	}
	c.checkFree(l)
	c.checkList(l)
	for hnd, r := range c.recs {
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
		n := l.slots[l.index(hnd)].expectCQE
		invariant.Check(n == owed, "V13", "handle %#x: the device owes %d completions, the accounts say %d", hnd, owed, n)
	}
}

// checkFree compares the free slots.
func (c *checks) checkFree(l *List) {
	invariant.Check(int(l.nfree) == len(c.free), "tags", "%d slots are counted as free, %d are", l.nfree, len(c.free))
	at := l.head
	for _, slot := range c.free {
		invariant.Check(l.free[at] == slot && l.slots[slot].expectCQE == 0, "tags", "the ring of free slots has slot %d, expectCQE %d, for slot %d",
			l.free[at], l.slots[slot].expectCQE, slot)
		at = l.next(at)
	}
	used := 0
	for i := range l.slots {
		if l.slots[i].expectCQE > 0 {
			used++
		}
	}
	invariant.Check(used+len(c.free) == len(l.slots), "tags", "%d slots are in use and %d free, of %d", used, len(c.free), len(l.slots))
}

// checkList compares the entries in the list, and which of them are live.
func (c *checks) checkList(l *List) {
	n := 0
	for _, hnd := range c.order {
		r, s := c.recs[hnd], &l.slots[l.index(hnd)]
		invariant.Check(s.listed && s.entry.Handle == hnd, "tags", "handle %#x is in the list, its slot says %v of handle %#x", hnd, s.listed, s.entry.Handle)
		if s.never {
			continue
		}
		n++
		seq, ok := l.entries.Seq(s.stored)
		invariant.Check(ok && (seq < l.limit) == r.live, "tags", "handle %#x: in the list %v, seq %d, limit %d, live %v", hnd, ok, seq,
			l.limit, r.live)
	}
	waiting := 0
	for i := range l.slots {
		if l.slots[i].listed {
			waiting++
		}
	}
	invariant.Check(n == l.Len() && waiting == len(c.order), "tags", "%d entries can be matched, %d are listed; the list has %d, %d slots wait",
		n, len(c.order), l.Len(), waiting)
}
