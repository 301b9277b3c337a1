//go:build invariants

package progress

import (
	"math"

	"github.com/tagmatch/tagmatch/internal/invariant"
)

// What software matches is looked for once more, from the front of the list: that needs no table,
// hash or index.

// matchDue tells whether a match in a list of this length is checked.
func (c *engineCheck) matchDue(entries int) bool {
	c.matches++
	return invariant.Due(entries, c.matches)
}

// checkReceiveLocked is V2 and V3 of a message with this tag: op is the receive that it gets, out
// of the shadow list and as it was there, or nil.
func (e *Engine) checkReceiveLocked(tag uint64, op *Op) {
	before := uint64(math.MaxUint64)
	if op != nil {
		checkEntry(op, "V3", "a match", opPosted, opOffered)
		invariant.Check((tag^op.tag)&op.mask == 0, "V2", "a message with tag %#x goes to a receive that does not match: %s", tag, op.note.where())
		before = op.note.order
	}
	if !e.inv.matchDue(e.posted.Len()) {
		return
	}
	for _, r := range e.posted.All() {
		if r == op {
			invariant.Broken("V3", "a receive has a message and waits for another: %s", op.note.where())
		}
		if r.note.order < before && (tag^r.tag)&r.mask == 0 {
			invariant.Broken("V2", "a message with tag %#x does not go to the oldest receive that matches: %s", tag, r.note.where())
		}
	}
}

// checkMessageLocked is V1 and V3 of a receive that is being posted: m is the message that it gets,
// out of the queue, or nil.
func (e *Engine) checkMessageLocked(tag, mask uint64, m *message) {
	before := uint64(math.MaxUint64)
	if m != nil {
		invariant.Check(!m.free(), "V3", "a receive with tag %#x gets a message that another has had", tag)
		invariant.Check((m.tag^tag)&mask == 0, "V1", "a receive with tag %#x gets message %d of %d, tag %#x", tag, m.seq, m.src, m.tag)
		before = m.seq
	}
	if !e.inv.matchDue(e.unexp.Len() + len(e.returned)) {
		return
	}
	left := func(u *message) {
		if u == m {
			invariant.Broken("V3", "message %d of %d has a receive and waits for another", m.seq, m.src)
		}
		if u.seq < before && (u.tag^tag)&mask == 0 {
			invariant.Broken("V1", "a receive with tag %#x does not get the oldest message that it matches, %d of %d", tag, u.seq, u.src)
		}
	}
	for _, u := range e.unexp.All() {
		left(u)
	}
	for _, u := range e.returned {
		left(u)
	}
}
