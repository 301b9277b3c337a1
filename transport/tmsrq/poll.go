package tmsrq

import (
	"github.com/tagmatch/tagmatch/internal/invariant"
	"github.com/tagmatch/tagmatch/transport/internal/links"
	"github.com/tagmatch/tagmatch/verbs"
)

// Kinds of requests, in the top four bits of their WRID, as links.Links define them. After an error
// status nothing else tells what a completion is of (ibv_poll_cq(3)). The slot is that of an entry.
//
//	kindTag                    generation 28 bits, slot 32 bits
//	kindAdd, kindDel, kindSync slot 28 bits, sequence number of the operation 32 bits
const (
	kindTag uint64 = iota + links.FirstKind // a receive in the list
	kindAdd                                 // list operations
	kindDel
	kindSync

	kindShift = links.KindShift
	genMask   = 1<<28 - 1 // of a generation, and of the slot of a list operation
)

// Poll makes progress and calls the sink for what happened.
func (t *Transport) Poll() (int, error) {
	if invariant.Enabled {
		defer t.inv.Polls()()
	}
	if err := t.Begin(); err != nil {
		return 0, err
	}
	n, empty := t.Drain((*handler)(t))
	if t.list.queued > 0 {
		n += t.list.flush()
	}
	if n > 0 {
		t.list.check()
	}
	if t.EndDue() {
		return t.End(n, empty)
	}
	return n, nil
}

// handler is the transport as its device sees it.
type handler Transport

// Complete handles one completion. Those of messages and list operations come in the order in which
// the device handled them (TMO 4.5).
func (h *handler) Complete(wc *verbs.WC) (again bool) {
	t := (*Transport)(h)
	if t.Usual(wc) {
		return t.Return(wc) // an unexpected eager message
	}
	if links.IsRecv(wc.WRID) {
		return t.untagged(wc)
	}
	switch wc.WRID >> kindShift {
	case kindTag:
		t.list.received(wc)
	case kindAdd, kindDel, kindSync:
		t.list.done(wc)
	default:
		t.Sent(wc)
	}
	return false
}
