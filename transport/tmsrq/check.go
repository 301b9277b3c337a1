//go:build invariants

package tmsrq

import (
	"slices"

	"github.com/tagmatch/tagmatch/internal/invariant"
	"github.com/tagmatch/tagmatch/transport/internal/format"
	"github.com/tagmatch/tagmatch/verbs"
)

// What a build with -tags invariants checks here, besides the Sink (package check).

// checkClass checks that the device counts messages with a tag and no others (V17, TMO 2.3). msg is
// in a buffer of the transport: the peer may still write to what is lent.
func (t *Transport) checkClass(wc *verbs.WC, msg []byte) {
	if t.cfg.MaxTags == 0 || wc.Data != nil {
		return
	}
	op := format.Opcode(msg)
	invariant.Check(counted(wc) == tagged(op), "V17", "a message with opcode %d completes as opcode %d", op, wc.Opcode)
}

// checkMove checks the next state of an entry against allowed, those that may follow its state.
func (l *tagList) checkMove(e *entry, to entryState, allowed []entryState) {
	invariant.Check(slices.Contains(allowed, to), "state", "receive %d, which is %v, becomes %v", e.id, e.state, to)
	if to == entryListed {
		l.t.inv.Adds(e.id)
	}
}

// checkDone checks that a list operation, by its number, completes once.
func (l *tagList) checkDone(seq uint32) {
	invariant.Check(seq-l.reclaimed < l.posted-l.reclaimed, "once", "list operation %d completes, %d are posted and %d done", seq, l.posted, l.reclaimed)
}

// check compares the counters of the list with its entries, at the end of a poll.
func (l *tagList) check() {
	invariant.Check(l.posted-l.reclaimed <= l.depth, "V14", "%d list operations are outstanding, the queue holds %d", l.posted-l.reclaimed, l.depth)
	if l.entries == nil || !invariant.Due(len(l.entries), l.posted) { // nil once closed
		return
	}
	used, queued := 0, 0
	for i := range l.entries {
		e := &l.entries[i]
		if e.state == entryFree {
			continue
		}
		used++
		if e.queued {
			queued++
		}
		at := l.byID.Find(e.id)
		invariant.Check((at == i) == e.open(), "tags", "receive %d: entry %d, found at %d, which is %v", e.id, i, at, e.state)
		invariant.Check(e.owed > 0 || e.owed == 0 && e.queued, "V13", "receive %d has %d completions to come", e.id, e.owed)
	}
	invariant.Check(queued == l.queued, "order", "%d deletions wait, %d are queued", queued, l.queued)
	invariant.Check(used+len(l.free) == len(l.entries), "tags", "%d entries are in use and %d free, of %d", used, len(l.free), len(l.entries))
}
