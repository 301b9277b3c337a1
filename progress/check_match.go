//go:build invariants

package progress

import (
	"math"

	"github.com/tagmatch/tagmatch/internal/invariant"
)

// What software matches is looked for once more, from the front of the list: that needs no table,
// hash or index.

// matchDue reports whether a match in a list of this length is checked.
func (c *engineCheck) matchDue(entries int) bool {
	c.matches++
	return invariant.Due(entries, c.matches)
}

// received is V2 and V3 of a message with this tag: op is the receive that it gets, out
// of the posted-receive queue and as it was there, or nil.
func (c *engineCheck) received(e *Engine, tag uint64, op *Op) {
	before := uint64(math.MaxUint64)
	if op != nil {
		checkEntry(op, "V3", "a match", opPosted, opOffloaded)
		invariant.Check((tag^op.tag)&op.mask == 0, "V2", "a message with tag %#x goes to a receive that does not match: %s", tag, op.note.where())
		before = op.note.order
	}
	if !c.matchDue(e.posted.Len()) {
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
