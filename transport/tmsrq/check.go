package tmsrq

import (
	"github.com/tagmatch/tagmatch/internal/invariant"
	"github.com/tagmatch/tagmatch/transport/rc"
	"github.com/tagmatch/tagmatch/verbs"
)

// What a build with -tags invariants checks here, besides rc.Checks.

// checkClass holds the device to TMO 2.3: what has a tag is counted, and nothing else is (V17).
// Only for what lies in a buffer of ours: what is lent may lie in memory that the peer can still
// write to.
func (t *Transport) checkClass(wc *verbs.WC, msg []byte) {
	if t.cfg.MaxTags == 0 || wc.Opcode == verbs.WCRecvRDMAWithImm {
		return
	}
	op := rc.Opcode(msg)
	invariant.Check(counted(wc) == tagged(op), "V17", "a message with opcode %d completes as opcode %d", op, wc.Opcode)
}

// check looks at the accounts of the list.
func (l *tagList) check() {
	if !invariant.Due(len(l.entries), l.posted) {
		return
	}
	used := 0
	for i := range l.entries {
		e := &l.entries[i]
		if e.owed == 0 && !e.queued {
			continue
		}
		used++
		at := l.byID.find(e.id)
		invariant.Check((at == i) == (!e.dropped && !e.ended), "tags", "receive %d: entry %d, found at %d, dropped %v, ended %v", e.id,
			i, at, e.dropped, e.ended)
	}
	invariant.Check(used+len(l.free) == len(l.entries), "tags", "%d entries are in use and %d free, of %d", used, len(l.free), len(l.entries))
}
