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
	(&dumper{e, &b}).all()
	e.mu.Unlock()
	_, err := out.Write(b.Bytes())
	return err
}

// dumper writes the text of a dump, under the engine's lock.
type dumper struct {
	e   *Engine
	out *bytes.Buffer
}

func (d *dumper) all() {
	e := d.e
	d.line("rank %d of %d, transport %s on %s", e.cfg.Rank, e.cfg.Size, e.caps.Name, e.caps.Device)
	e.wait.Dump(d.out)
	d.wires()
	if e.broken != nil {
		d.line("stopped: %v", e.broken)
	}
	d.posted()
	d.unexpected()
	if e.off.tags != nil {
		d.slots("receives in the device", &e.off.slots)
	}
	d.slots("rendezvous sends", &e.sends)
	d.slots("receives that read", &e.reads.slots)
	for _, p := range e.peers {
		if p != nil {
			d.peer(p)
		}
	}
	for q := e.queues.waiting.head; q != nil; q = q.next {
		d.queue(q)
	}
	e.inv.dump(d.out)
}

func (d *dumper) line(format string, args ...any) { fmt.Fprintf(d.out, format+"\n", args...) }

// more reports whether entry n of a list, from 1 on, is shown.
func (d *dumper) more(n int) bool {
	if n > dumpMost {
		d.line("  ...")
	}
	return n <= dumpMost
}

// wires says what carries the messages of whom.
func (d *dumper) wires() {
	by := map[string][]int{}
	for rank, name := range d.e.wiresLocked() {
		if name != "" && rank != d.e.cfg.Rank {
			by[name] = append(by[name], rank)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(by)) {
		d.line("by %s: %s", name, ranks.List(by[name]))
	}
}

func (d *dumper) posted() {
	e := d.e
	d.line("posted receives: %d", e.posted.Len())
	n := 0
	for _, op := range e.posted.All() {
		if n++; !d.more(n) {
			return
		}
		d.line("  from %s, %s, %s", rankName(op.peer), e.cfg.tagText(op.tag, op.wanted()), op.takes())
	}
}

func (d *dumper) unexpected() {
	e := d.e
	bytes, _ := e.unexp.Memory()
	d.line("unexpected messages: %d, %d bytes with their records", e.unexp.Len(), bytes)
	n := 0
	for m := range e.unexp.All() {
		if n++; !d.more(n) {
			return
		}
		kind, size := "eager", uint64(len(m.Data))
		if m.Rndv {
			kind, size = "rendezvous", m.Len
		}
		d.line("  from %d, %s, %d bytes, %s", m.Src, e.cfg.tagText(m.Tag, ^uint64(0)), size, kind)
	}
}

func (d *dumper) slots(title string, t *slots) {
	d.line("%s: %d", title, t.used)
	n := 0
	for op := range t.ops() {
		if n++; !d.more(n) {
			return
		}
		peer := "from " + rankName(op.peer)
		switch op.state {
		case opRequested, opWithdrawing:
			peer = "to " + rankName(op.peer)
		case opMatched, opReading:
			peer = "from " + rankName(op.read.src)
		}
		d.line("  %s: %s, %s, %d bytes", opStateNames[op.state], peer, d.e.cfg.tagText(op.tag, op.wanted()), op.room())
	}
}

// peer shows a peer only if something about it is worth knowing.
func (d *dumper) peer(p *peer) {
	if p.lost != nil {
		d.line("rank %d lost: %v", p.rank, p.lost)
		return
	}
	if n := len(p.fins) + len(p.ctrls); n != 0 || !p.readq.empty() {
		d.line("rank %d: %d fins, %d control messages wait for room", p.rank, len(p.fins), len(p.ctrls))
	}
	if o := &p.out; o.HeldUp() {
		d.line("rank %d: %d sends are held up, the receiver has no memory for them and waits for %d others; "+
			"credit left %d bytes", p.rank, o.Len(), o.Wants(), o.Left())
	} else if !o.Empty() && p.met {
		d.line("rank %d: %d sends wait for room", p.rank, o.Len())
	} else if p.dirty && !p.met {
		d.line("rank %d is not connected yet: %d sends wait for it", p.rank, o.Len())
	}
	if p.in.HeldUp() {
		charged, consumed, window := p.in.Usage()
		d.line("rank %d is held up: its messages take %d bytes of %d here", p.rank, charged-consumed, window)
	}
}

func (d *dumper) queue(q *Queue) {
	calls, pending := 0, 0
	for c := q.calls.head; c != nil; c = c.next {
		calls++
	}
	for en := q.pending.head; en != nil; en = en.next {
		pending++
	}
	d.line("goroutines that wait at a queue: %d, for %d requests", calls, pending)
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
func (c *Config) tagText(tag, mask uint64) string {
	switch {
	case c.TagText != nil:
		return c.TagText(tag, mask)
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
