//go:build invariants

package progress

import (
	"iter"

	"github.com/tagmatch/tagmatch/internal/invariant"
	"github.com/tagmatch/tagmatch/matching"
)

// covers reports whether messages of a rank are counted for the device with the tag list.
func (c *engineCheck) covers(e *Engine, src int) bool {
	return uint(src) >= uint(len(e.peers)) || !e.peer(src).foreign
}

// settle follows an unexpected message that is delivered, visible in the queue, or refused.
func (c *engineCheck) settle(e *Engine, src int) {
	if c.covers(e, src) {
		c.settled++
	}
}

// counted is V8: a message is counted once, when it is settled.
func (c *engineCheck) counted(o *offload) {
	invariant.Check(o.handled == c.settled, "V8", "%d unexpected messages are counted, %d are delivered or queued", o.handled, c.settled)
}

// added follows a receive that the device has got.
func (c *engineCheck) added(op *Op) {
	id := op.slot.id()
	if c.device == nil {
		c.device = map[uint64]*record{}
	}
	invariant.Check(c.device[id] == nil, "V13", "the name of a receive in the device is used again: %s", op.note.where())
	c.device[id] = op.note
}

// released follows a receive that has left the device: V12.
func (c *engineCheck) released(s slot) {
	invariant.Check(c.device[s.id()] != nil, "V12", "receive %#x leaves the device and is not there", s.id())
	delete(c.device, s.id())
}

// foundReceive is a receive in the device that an unexpected message has found. count is C with the
// message.
type foundReceive struct {
	slot
	count uint32
}

// found follows such a receive, before the message is counted: a message finds one, which is taken
// out before the next comes.
func (c *engineCheck) found(op *Op) {
	if d := c.due; d != nil {
		invariant.Broken("V9", "receive %#x, found by message %d, is still in the device's list: the next one finds another", d.id(), d.count)
	}
	c.due = &foundReceive{op.slot, c.settled + 1}
}

// dropped follows its forced DEL.
func (c *engineCheck) dropped(s slot) {
	invariant.Check(c.due != nil && c.due.slot == s, "V9", "receive %#x is taken out by force, and no message found it", s.id())
	c.due = nil
}

// reporting is V9 and V8: an operation reports a count. The receive whose message it includes is
// being taken out, and all messages that it includes are settled.
func (c *engineCheck) reporting(o *offload, count uint32) {
	invariant.Check(int32(count-c.settled) <= 0, "V8", "the device is told of %d messages, %d are delivered or queued", count, c.settled)
	invariant.Check(int32(count-o.reported) >= 0, "V8", "the device is told of %d messages after %d", count, o.reported)
	if d := c.due; d != nil {
		invariant.Check(int32(count-d.count) < 0, "V9", "the device is told of %d messages while receive %#x, found by message %d, is still in its list",
			count, d.id(), d.count)
	}
}

// check checks the lists around the device, against the posted-receive queue.
func (o *offload) check(posted *matching.Posted[*Op]) {
	o.checkKept(posted)
	o.checkSlots()
	o.checkOverlap(posted)
	o.inv.counted(o)
	invariant.Check(!o.finding && o.inv.due == nil, "V9", "a receive that a message has found is still in the device's list")
	invariant.Check(o.counts == (o.foreign == 0), "V8", "between messages, with %d ranks that come another way, each counts: %v", o.foreign, o.counts)
}

// checkKept: offload.kept has exactly the receives that are in the posted-receive queue and not in
// the device, in order, up to offload.since; offload.waiting those of them that the device may get.
func (o *offload) checkKept(posted *matching.Posted[*Op]) {
	n, last, newest := 0, uint64(0), uint64(0)
	for h, op := range o.keptAll(posted) {
		checkEntry(op, "V5", "the list of those that software keeps", opPosted)
		invariant.Check(op.kept == h, "V5", "a receive that software keeps is under another handle: %s", op.note.where())
		before := last
		if h == 0 { // those that are back may have been posted later
			before = newest
		}
		invariant.Check(op.note.order > before, "V5", "a receive that software keeps is behind one that was posted later: %s", op.note.where())
		may := len(op.buf) >= o.least && op.covered() && op.kind == kindReceive && !op.back
		invariant.Check(op.linked == may, "V18", "a receive that may go to the device, or may not, waits for it %v: %s", op.linked, op.note.where())
		invariant.Check(!may || h != 0, "V6", "a receive that may go to the device is not where others look for it: %s", op.note.where())
		last = op.note.order
		if !op.back {
			newest = last
		}
		if may {
			n++
		}
	}
	last = 0
	for op := o.waiting.head; op != nil; op = op.next {
		_, ok := o.kept.Seq(op.kept)
		invariant.Check(ok && op.linked, "V5", "a receive waits for the device that software does not keep: %s", op.note.where())
		invariant.Check(op.note.order > last, "V5", "a receive waits for the device behind one that was posted later: %s", op.note.where())
		last = op.note.order
		n--
	}
	invariant.Check(n == 0, "V5", "%d receives that wait for the device are in no list", n)
	n = 0
	for _, op := range posted.All() {
		if op.state == opPosted {
			n++
		}
	}
	for range o.keptAll(posted) {
		n--
	}
	invariant.Check(n == 0, "V5", "software keeps %d receives more than are in the lists of them", n)
}

// keptAll yields what kept has, with its handles, and then what it will have.
func (o *offload) keptAll(posted *matching.Posted[*Op]) iter.Seq2[matching.Handle, *Op] {
	return func(yield func(matching.Handle, *Op) bool) {
		for h, op := range o.kept.All() {
			if !yield(h, op) {
				return
			}
		}
		for op := range posted.Since(o.since) {
			if !yield(0, op) {
				return
			}
		}
	}
}

// checkSlots is V12: what the device has is what it was given and has not ended.
func (o *offload) checkSlots() {
	inList, fresh := 0, 0
	for i := range o.slots.entries {
		en := &o.slots.entries[i]
		op := en.op
		if op == nil {
			continue
		}
		checkEntry(op, "V12", "the device", opOffloaded, opCancelling, opMatched)
		invariant.Check(op.slot == slot{uint32(i), en.gen} && o.inv.device[op.slot.id()] == op.note, "V12", "a receive is in the device under another name: %s", op.note.where())
		invariant.Check((op.state == opCancelling) == (op.err != nil), "V12", "a receive is cancelling for %v: %s", op.err, op.note.where())
		if op.state == opMatched {
			continue
		}
		inList++
		if op.added == o.reported {
			fresh++
		}
	}
	invariant.Check(inList == o.entries, "V14", "%d receives are counted in the device's list, there are %d", o.entries, inList)
	invariant.Check(fresh == o.fresh, "V14", "%d receives are counted as added with the last count, there are %d", o.fresh, fresh)
	invariant.Check(len(o.inv.device) == o.slots.used && o.slots.used <= o.most, "V14", "%d receives have slots, the device has %d; it holds %d", o.slots.used, len(o.inv.device), o.most)
}

// overlapLook is how many receives in the device one check looks at, unless it is to be thorough;
// the next goes on behind them.
const overlapLook = 64

// checkOverlap is V6 as it must hold at all times: software keeps no receive that overlaps
// one in the device that was posted later. What it keeps only ever leaves, and nothing comes back
// from the device to it.
func (o *offload) checkOverlap(posted *matching.Posted[*Op]) {
	entries := o.slots.entries
	look := len(entries)
	if !invariant.Thorough {
		look = min(look, overlapLook)
	}
	for range look {
		o.inv.looked++
		op := entries[o.inv.looked%len(entries)].op
		if op == nil || op.state != opOffloaded {
			continue
		}
		for _, k := range o.keptAll(posted) {
			if k.note.order > op.note.order {
				break
			}
			invariant.Check(!matching.Overlap(op.tag, op.mask, k.tag, k.mask), "V6", "a receive in the device, %s\n is overlapped by an earlier one in software, %s",
				op.note.where(), k.note.where())
		}
	}
}
