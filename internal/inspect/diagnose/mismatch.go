package diagnose

import (
	"fmt"
	"math/bits"

	"github.com/tagmatch/tagmatch/internal/inspect"
)

// found is a message that a receive might have been meant for.
type found struct {
	inspect.Key
	src   int // rank
	bytes uint64
	sent  bool // it is here, or was announced; else it is held up at its sender
	kind  difference
	far   int // how much it differs
}

type difference int

const (
	otherTag difference = iota
	otherSource
	otherComm
)

// mismatches explains each receive and send of a knot that has no counterpart, and reports whether
// there are such.
func (d *diagnosis) mismatches(at []int) bool {
	before := len(d.verdicts)
	for _, i := range at {
		for k := range d.waits[i] {
			if len(d.verdicts)-before == mostOfKind {
				return true
			}
			switch w := &d.waits[i][k]; {
			case w.recv != nil && !d.internal(i, w.recv.Comm):
				d.receiveMismatch(i, w)
			case w.send != nil:
				d.sendMismatch(i, w.send)
			}
		}
	}
	return len(d.verdicts) != before
}

// internal reports whether messages of a Comm are those of collective calls, for a member.
func (d *diagnosis) internal(i int, comm string) bool {
	return comm == inspect.CommLibrary || d.members[i].inner[comm]
}

func (d *diagnosis) receiveMismatch(i int, w *wait) {
	m, r := &d.members[i], w.recv
	v := Verdict{Class: Mismatch, Culprit: true, Comm: r.Comm, Bytes: r.Bytes, Age: r.Age, Where: d.place(i, callOf(w))}
	if !r.Any {
		v.Tag = &r.Tag
	}
	waits := fmt.Sprintf("Rank %d waits for a message of %s with %s%s", m.Rank, sourceText(r.Peer), tagText(r.Key), suffix(v.Where))
	if f := d.nearest(i, r); f != nil && d.meant(i, r, f) {
		src := d.index[f.src]
		v.What = fmt.Sprintf("%s, and has one of rank %d with %s (%s)", waits, f.src, tagText(f.Key), bytesText(f.bytes))
		if !f.sent {
			v.What = fmt.Sprintf("%s, and rank %d sends one with %s (%s)", waits, f.src, tagText(f.Key), bytesText(f.bytes))
		}
		d.differ(&v, r, f)
		v.What += d.whatOf(w)
		d.add(v, []int{i, src}, []int{i})
		return
	}
	if !d.nobody(w) {
		return
	}
	v.What = waits + ", which nobody can send any more." + d.whatOf(w)
	v.Do = "Find the send that is missing, or leave the receive out."
	d.add(v, append([]int{i}, firstOf(w.sources, i)...), []int{i})
}

func firstOf(sources []int, but int) []int {
	if len(sources) == 1 && sources[0] != but {
		return sources
	}
	return nil
}

// differ tells in what the message is another one, and what to do.
func (d *diagnosis) differ(v *Verdict, r *inspect.Receive, f *found) {
	const both = "Use the same %s on both ranks."
	switch f.kind {
	case otherTag:
		v.Bits = &Bits{Asked: r.Tag, Found: f.Tag}
		v.What += ", " + differText(r.Tag, f.Tag) + "."
		v.Do = fmt.Sprintf(both, "tag")
	case otherSource:
		v.What += ": the source differs."
		v.Do = fmt.Sprintf("Receive from rank %d, or let rank %d send.", f.src, r.Peer)
	case otherComm:
		v.What += fmt.Sprintf(", of %s: the Comm differs.", f.Comm)
		v.Do = fmt.Sprintf(both, "Comm")
	}
}

// whatOf adds what the source of a receive does meanwhile.
func (d *diagnosis) whatOf(w *wait) string {
	if w.recv.Peer == inspect.Any {
		return ""
	}
	if len(w.sources) == 1 {
		return fmt.Sprintf(" Rank %d %s.", w.recv.Peer, d.doing(w.sources[0]))
	}
	return ""
}

// nearest is the message that differs least from what a receive asks for; nil where there is none
// that the receive could be meant for.
func (d *diagnosis) nearest(i int, r *inspect.Receive) (best *found) {
	m := &d.members[i]
	if m.compared += len(m.Messages) + len(d.incoming[i]); m.compared > compareMost {
		return nil
	}
	consider := func(f found) {
		if f.far, f.kind = d.far(i, r, &f); f.far >= 0 && (best == nil || f.far < best.far) {
			best = &f
		}
	}
	for _, msg := range m.Messages {
		consider(found{Key: msg.Key, src: msg.Peer, bytes: msg.Bytes, sent: true})
	}
	for _, s := range d.incoming[i] {
		if s.Stage == inspect.StageHeld || s.Stage == inspect.StageRoom {
			consider(found{Key: s.Key, src: s.src, bytes: s.Bytes})
		}
	}
	return best
}

// far is by how much a message differs from what a receive asks for, in one respect; below 0 where
// it differs in more.
func (d *diagnosis) far(i int, r *inspect.Receive, f *found) (int, difference) {
	source, tag := comesFrom(r, f.src), matches(inspect.Key{Comm: f.Comm, Tag: r.Tag, Mask: r.Mask, Any: r.Any}, f.Key)
	_, answered := d.index[f.src]
	switch {
	case !answered || d.internal(i, f.Comm):
		return -1, 0
	case source && r.Comm == f.Comm && !tag:
		if f.Tag-r.Tag == 1 || r.Tag-f.Tag == 1 {
			return 0, otherTag
		}
		n := bits.OnesCount64(f.Tag ^ r.Tag)
		return min(n, 2) * n, otherTag // one bit, or above the other kinds
	case source && tag && f.Comm != inspect.CommRaw && r.Comm != inspect.CommRaw:
		return 2, otherComm
	case tag && r.Comm == f.Comm:
		return 3, otherSource
	}
	return -1, 0
}

// meant reports whether a message is likely what the receive was meant for, rather than one for
// later: nobody else receives it, as its sender, or the source that the receive names, waits for
// this rank in a collective call; the sender waits for this message; or the tags are alike.
func (d *diagnosis) meant(i int, r *inspect.Receive, f *found) bool {
	if f.kind == otherTag && f.far < 2 {
		return true
	}
	for _, rank := range []int{f.src, r.Peer} {
		if at, ok := d.index[rank]; ok && (d.members[at].Phase == inspect.PhaseShutdown || waitingIn(&d.members[at]) != nil) {
			return true
		}
	}
	for _, w := range d.waits[d.index[f.src]] {
		if w.send != nil && w.send.Peer == d.members[i].Rank && w.send.Key == f.Key {
			return true
		}
	}
	return false
}

// nobody reports whether all that could satisfy a receive are in Shutdown. The receiver itself does
// not count: it waits.
func (d *diagnosis) nobody(w *wait) bool {
	if w.anyOf {
		return d.leaving > 0 && d.leaving >= len(d.members)-1 && len(w.away) == 0
	}
	for _, i := range w.sources {
		if d.members[i].Phase != inspect.PhaseShutdown {
			return false
		}
	}
	return len(w.sources) != 0 && len(w.away) == 0
}

// sendMismatch explains a send to a rank that is in Shutdown, and so receives it no more.
func (d *diagnosis) sendMismatch(i int, s *inspect.Send) {
	m := &d.members[i]
	dst, answered := d.index[s.Peer]
	if !answered || s.Stage != inspect.StageRequested || d.members[dst].Phase != inspect.PhaseShutdown {
		return
	}
	v := Verdict{Class: Mismatch, Culprit: true, Comm: s.Comm, Tag: &s.Tag, Bytes: s.Bytes, Age: s.Age, Where: d.place(i, "end")}
	v.What = fmt.Sprintf("Rank %d has sent %s to rank %d with %s%s, which has not received it and waits in Shutdown%s.",
		m.Rank, bytesText(s.Bytes), s.Peer, tagText(s.Key), suffix(v.Where), suffix(d.place(dst, inspect.MeetingShutdown)))
	v.Do = fmt.Sprintf("Find the receive that is missing on rank %d, or leave the send out.", s.Peer)
	d.add(v, []int{i, dst}, []int{i})
}
