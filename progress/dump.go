package progress

import (
	"bytes"
	"fmt"
	"io"
)

// dumpMost is how many entries of each list a dump shows.
const dumpMost = 32

// Dump writes what this rank waits for, for people.
func (e *Engine) Dump(out io.Writer) error {
	var b bytes.Buffer
	e.lock()
	e.dumpLocked(&b)
	e.mu.Unlock()
	_, err := out.Write(b.Bytes())
	return err
}

func (e *Engine) dumpLocked(b *bytes.Buffer) {
	fmt.Fprintf(b, "rank %d of %d, transport %s on %s\n", e.cfg.Rank, e.cfg.Size, e.caps.Name, e.caps.Device)
	if e.broken != nil {
		fmt.Fprintf(b, "stopped: %v\n", e.broken)
	}
	fmt.Fprintf(b, "posted receives: %d\n", e.posted.Len())
	n := 0
	for _, op := range e.posted.All() {
		if n++; n > dumpMost {
			fmt.Fprintf(b, "  ...\n")
			break
		}
		where := ""
		if op.state == opOffered {
			where = ", in the device"
		}
		fmt.Fprintf(b, "  from %s tag %#x mask %#x, %d bytes%s\n", rankName(op.peer), op.tag, op.mask, len(op.buf), where)
	}
	e.dumpUnexpectedLocked(b)
	if e.tags != nil {
		e.dumpSlots(b, "receives in the device", &e.off.slots)
	}
	e.dumpSlots(b, "rendezvous sends", &e.sends)
	e.dumpSlots(b, "receives that read", &e.reads)
	for i := range e.peers {
		e.dumpPeerLocked(b, &e.peers[i])
	}
	e.inv.dump(b)
}

func (e *Engine) dumpUnexpectedLocked(b io.Writer) {
	fmt.Fprintf(b, "unexpected messages: %d, %d eager bytes\n", e.unexp.Len()+len(e.returned), e.m.UnexpectedBytes)
	n := 0
	for _, m := range e.unexp.All() {
		if n++; n > dumpMost {
			fmt.Fprintf(b, "  ...\n")
			break
		}
		kind, size := "eager", uint64(len(m.data))
		if m.rndv {
			kind, size = "rendezvous", m.length
		}
		fmt.Fprintf(b, "  from %d tag %#x, %d bytes, %s\n", m.src, m.tag, size, kind)
	}
	for _, m := range e.returned[:min(len(e.returned), dumpMost)] {
		promised := ""
		if e.promisedLocked(m) {
			promised = ", for a receive that the device is asked for"
		}
		fmt.Fprintf(b, "  from %d tag %#x, %d bytes, given back%s\n", m.src, m.tag, m.length, promised)
	}
}

func (e *Engine) dumpSlots(b *bytes.Buffer, title string, t *slots) {
	fmt.Fprintf(b, "%s: %d\n", title, t.used)
	n := 0
	for i := range t.entries {
		op := t.entries[i].op
		if op == nil {
			continue
		}
		if n++; n > dumpMost {
			fmt.Fprintf(b, "  ...\n")
			return
		}
		peer := op.peer
		if op.state == opReading {
			peer = op.read.src
		}
		fmt.Fprintf(b, "  %s: rank %d tag %#x, %d bytes\n", opStateNames[op.state], peer, op.tag, len(op.buf))
	}
}

// dumpPeerLocked shows a peer only if something about it is worth knowing.
func (e *Engine) dumpPeerLocked(b *bytes.Buffer, p *peer) {
	if p.lost != nil {
		fmt.Fprintf(b, "rank %d lost: %v\n", p.rank, p.lost)
		return
	}
	queued := 0
	for op := p.sendq.head; op != nil; op = op.next {
		queued++
	}
	if queued+len(p.fins)+len(p.ctrls) != 0 || !p.readq.empty() {
		fmt.Fprintf(b, "rank %d: %d sends, %d fins, %d control messages wait for room; credit %d of %d used\n", p.rank,
			queued, len(p.fins), len(p.ctrls), p.credit.charged-p.credit.granted, p.credit.window)
	}
}

func rankName(rank int) string {
	if rank == AnySource {
		return "any"
	}
	return fmt.Sprint(rank)
}
