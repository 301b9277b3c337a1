//go:build invariants

package links

import (
	"bytes"
	"slices"

	"github.com/tagmatch/tagmatch/internal/invariant"
	"github.com/tagmatch/tagmatch/transport/internal/format"
	"github.com/tagmatch/tagmatch/verbs"
)

// What a build with -tags invariants checks here, besides the Sink (package check).

// ringCheck tells, by slot, which receive buffers the device owns.
type ringCheck []bool

func (c *ringCheck) init(depth int) { *c = make([]bool, depth) }

// checkHeader checks the header of a message to be sent: a tagged message is never NO_TAG (V17).
func checkHeader(wr *verbs.SendWR) {
	if wr.Opcode != verbs.WRSend && wr.Opcode != verbs.WRSendWithImm {
		return
	}
	b := wr.SGList[0].Data
	switch op := verbs.TMHOpcode(b[0]); op {
	case verbs.TMHNoTag:
		invariant.Check(len(b) >= format.CtrlSize && b[1] == format.CtrlKind && wr.Opcode == verbs.WRSend, "V17", "a NO_TAG message that is no control message")
	case verbs.TMHRndv, verbs.TMHFin, verbs.TMHEager:
		invariant.Check(len(b) >= verbs.TMHSize && (op == verbs.TMHEager || wr.Opcode == verbs.WRSend), "V17",
			"a message with opcode %d and a header of %d bytes, sent by opcode %d", op, len(b), wr.Opcode)
	default:
		invariant.Broken("V17", "a message with unknown opcode %d is sent", op)
	}
}

// checkCompleted checks the sequence number of a completed request.
func (p *peer) checkCompleted(seq uint32) {
	invariant.Check(seq-p.done < p.posted-p.done, "once", "request %d to rank %d completes, %d are posted and %d done", seq, p.rank, p.posted, p.done)
	invariant.Check(p.state != linkUp || seq-p.done < p.signalled-p.done, "once", "request %d completes: none is signalled from there on", seq)
}

// check compares what is used of the budget with what the peers have outstanding.
func (b *budget) check(made []*peer, tick uint32) {
	if !invariant.Due(len(made), tick) {
		return
	}
	sum := b.behind
	for _, p := range made {
		sum += p.posted - p.done
	}
	invariant.Check(sum == b.used && b.used <= b.total, "budget", "%d send requests are outstanding, %d are counted, of %d", sum, b.used, b.total)
}

// checkTaken takes a slot, which completes, from the device.
func (r *ring) checkTaken(slot uint64) {
	invariant.Check(r.inv[slot], "once", "receive buffer %d completes, which is not posted", slot)
	r.inv[slot] = false
}

// checkPosted gives a slot to the device: it has come back before, and its message was handled
// (V15).
func (r *ring) checkPosted(slot uint64) {
	invariant.Check(!r.inv[slot], "V15", "receive buffer %d is posted, which the device has", slot)
	r.inv[slot] = true
}

// poison overwrites a message that lies in a slot and was handled.
func (r *ring) poison(wc *verbs.WC) { invariant.PoisonStart(r.message(wc)) }

// poolCheck tells, by slot, which bounce buffers have come back, and are overwritten. The others
// are as they were made, so that most of their pages are never touched.
type poolCheck []bool

func (c *poolCheck) init(n int) { *c = make([]bool, n) }

// checkFree checks that nobody has written to a bounce buffer since it came back, or was made.
func (b *Pool) checkFree(slot uint32) {
	buf := b.at(uint64(slot))
	if b.inv[slot] {
		invariant.RequirePoison(buf, "a free bounce buffer")
		return
	}
	invariant.Check(bytes.Count(buf, []byte{0}) == len(buf), "poison", "bounce buffer %d was written to before its life", slot)
}

// checkPut checks that a bounce buffer comes back once, and overwrites it.
func (b *Pool) checkPut(slot uint32) {
	invariant.Check(!slices.Contains(b.free, slot), "once", "bounce buffer %d comes back twice", slot)
	invariant.PoisonStart(b.at(uint64(slot)))
	b.inv[slot] = true
}

// checkDereg checks that a region is deregistered once.
func (r *region) checkDereg() {
	invariant.Check(r.MR != nil && r.p.registered > 0, "once", "a region is deregistered twice")
}
