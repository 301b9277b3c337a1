package progress

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/tagmatch/tagmatch/internal/ranks"
)

// dumpMost is how many entries of each list a dump shows.
const dumpMost = 32

// Dump writes what this rank waits for, for people.
func (e *Engine) Dump(out io.Writer) error {
	var b bytes.Buffer
	e.mu.Lock()
	e.dumpLocked(&b)
	e.mu.Unlock()
	_, err := out.Write(b.Bytes())
	return err
}

func (e *Engine) dumpLocked(b *bytes.Buffer) {
	fmt.Fprintf(b, "rank %d of %d, transport %s on %s\n", e.cfg.Rank, e.cfg.Size, e.caps.Name, e.caps.Device)
	e.wait.Dump(b)
	e.dumpWiresLocked(b)
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
		fmt.Fprintf(b, "  from %s, %s, %s\n", rankName(op.peer), e.tagText(op.tag, op.wanted()), op.takes())
	}
	e.dumpUnexpectedLocked(b)
	if e.off.tags != nil {
		e.dumpSlots(b, "receives in the device", &e.off.slots)
	}
	e.dumpSlots(b, "rendezvous sends", &e.sends)
	e.dumpSlots(b, "receives that read", &e.reads)
	for i := range e.peers {
		e.dumpPeerLocked(b, &e.peers[i])
	}
	for q := e.queues.head; q != nil; q = q.next {
		q.dumpLocked(b)
	}
	e.inv.dump(b)
}

// dumpWiresLocked says what carries the messages of whom.
func (e *Engine) dumpWiresLocked(b io.Writer) {
	by := map[string][]int{}
	for rank, name := range e.wiresLocked() {
		if name != "" && rank != e.cfg.Rank {
			by[name] = append(by[name], rank)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(by)) {
		fmt.Fprintf(b, "by %s: %s\n", name, ranks.List(by[name]))
	}
}

func (e *Engine) dumpUnexpectedLocked(b io.Writer) {
	bytes, _ := e.unexp.Memory()
	fmt.Fprintf(b, "unexpected messages: %d, %d bytes with their records\n", e.unexp.Len(), bytes)
	n := 0
	for m := range e.unexp.All() {
		if n++; n > dumpMost {
			fmt.Fprintf(b, "  ...\n")
			break
		}
		kind, size := "eager", uint64(len(m.Data))
		if m.Rndv {
			kind, size = "rendezvous", m.Len
		}
		fmt.Fprintf(b, "  from %d, %s, %d bytes, %s\n", m.Src, e.tagText(m.Tag, ^uint64(0)), size, kind)
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
		peer := "from " + rankName(op.peer)
		switch op.state {
		case opRequested, opWithdrawing, opTaken:
			peer = "to " + rankName(op.peer)
		case opMatched, opReading:
			peer = "from " + rankName(op.read.src)
		}
		fmt.Fprintf(b, "  %s: %s, %s, %d bytes\n", opStateNames[op.state], peer, e.tagText(op.tag, op.wanted()), op.room())
	}
}

// dumpPeerLocked shows a peer only if something about it is worth knowing.
func (e *Engine) dumpPeerLocked(b *bytes.Buffer, p *peer) {
	if p.lost != nil {
		fmt.Fprintf(b, "rank %d lost: %v\n", p.rank, p.lost)
		return
	}
	if n := len(p.fins) + len(p.ctrls); n != 0 || !p.readq.empty() {
		fmt.Fprintf(b, "rank %d: %d fins, %d control messages wait for room\n", p.rank, len(p.fins), len(p.ctrls))
	}
	if o := &p.out; o.HeldUp() {
		fmt.Fprintf(b, "rank %d: %d sends are held up, the receiver has no memory for them and waits for %d others; "+
			"credit left %d bytes\n", p.rank, o.Len(), o.Wants(), o.Left())
	} else if !o.Empty() {
		fmt.Fprintf(b, "rank %d: %d sends wait for room\n", p.rank, o.Len())
	}
	if p.in.HeldUp() {
		charged, consumed, window := p.in.Usage()
		fmt.Fprintf(b, "rank %d is held up: its messages take %d bytes of %d here\n", p.rank, charged-consumed, window)
	}
}

func (q *Queue) dumpLocked(b io.Writer) {
	calls, pending := 0, 0
	for c := q.calls.head; c != nil; c = c.next {
		calls++
	}
	for en := q.pending.head; en != nil; en = en.next {
		pending++
	}
	fmt.Fprintf(b, "goroutines that wait at a queue: %d, for %d requests\n", calls, pending)
}

// takes says what a posted receive has for its message. A probe has no buffer, and RecvAlloc none
// before it knows the length.
func (op *Op) takes() string {
	switch {
	case op.allocates():
		return "RecvAlloc"
	case op.kind.probe():
		return "a probe"
	case op.state == opOffloaded:
		return fmt.Sprintf("%d bytes, in the device", op.room())
	}
	return fmt.Sprintf("%d bytes", op.room())
}

// tagText is a tag and a mask for people.
func (e *Engine) tagText(tag, mask uint64) string {
	switch {
	case e.cfg.TagText != nil:
		return e.cfg.TagText(tag, mask)
	case mask == ^uint64(0):
		return fmt.Sprintf("tag %#x", tag)
	}
	return fmt.Sprintf("tag %#x mask %#x", tag, mask)
}

func rankName(rank int) string {
	if rank < 0 {
		return "any"
	}
	return fmt.Sprint(rank)
}
