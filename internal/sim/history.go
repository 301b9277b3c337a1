package sim

import (
	"bytes"
	"cmp"
	"errors"
	"slices"

	"github.com/tagmatch/tagmatch/internal/contexts"
	"github.com/tagmatch/tagmatch/internal/matchmodel"
	"github.com/tagmatch/tagmatch/progress"
)

// A history is what one rank saw, in terms of internal/matchmodel. Operations that a loss has ended
// are left out, which is correct for the others: a receive that failed had no message, or had one
// and failed with it, as if neither existed; a lost rank's message that was not received was never
// first in line for a receive that got another. To detect dropped messages all the same, missing
// lists which of those must have been received. Where a lost rank's message was received and an
// equal one was not, it is unknown which one it was: that message and its receive are left out too.

// delivery is a message to a rank and its receive.
type delivery struct {
	src  int
	send *op
	recv *op  // nil: not received
	gone bool // it may be lost: the two ranks have lost each other, its Comm is closed, or see closedWith
}

// checkHistory compares what a rank received with what was sent to it and with the model of
// matching. If the rank was stopped midway, unfinished operations are left out, as those that a
// loss ends.
func (w *world) checkHistory(r *rank, midway bool) error {
	mail := w.mail(r)
	if err := w.deliver(r, mail); err != nil {
		return err
	}
	if err := w.explain(r, mail); err != nil {
		return fail("matching", "rank %d of %d: %w", r.id, w.size(), err)
	}
	if midway {
		return nil
	}
	for src := range mail {
		if err := w.missing(r, src, mail[src]); err != nil {
			return err
		}
		if err := w.overtaken(r, mail[src]); err != nil {
			return err
		}
	}
	return nil
}

// inOrder returns a rank's operations, receives in the order of posting.
func (r *rank) inOrder() []*op {
	ops := slices.Clone(r.ops)
	slices.SortStableFunc(ops, func(a, b *op) int { return cmp.Compare(a.order, b.order) })
	return ops
}

// mail lists the messages to a rank by source, in the order of sending, without those that were
// withdrawn or refused.
func (w *world) mail(r *rank) [][]delivery {
	mail := make([][]delivery, w.size())
	for src, p := range w.ranks {
		for _, o := range p.ops {
			if o.send && o.peer == r.id && !o.canceled() && !o.refused() {
				mail[src] = append(mail[src], delivery{src: src, send: o, gone: w.apart(r.id, src) || o.retired(r.id) || w.closedWith(r, o.tag)})
			}
		}
	}
	return mail
}

// closedWith reports whether a rank may have been closed, or stopped by an abort, with a message
// that a matched probe had taken, or that a receive was reading, and that nobody had received yet.
func (w *world) closedWith(r *rank, tag uint64) bool {
	left := func(o *op) bool { return (o.takes || o.isRecv()) && !o.received() && (tag^o.tag)&o.mask == 0 }
	return (w.plan.Params.CloseMid || r.stopped) &&
		(slices.ContainsFunc(r.held, func(t taken) bool { return left(t.o) }) || slices.ContainsFunc(r.ops, left))
}

// deliver finds the message that each receive got. Equal messages,
// short ones of one tag, are assigned in the order of sending: any other order would be a mistake,
// since every receive that matches one of them matches all.
func (w *world) deliver(r *rank, mail [][]delivery) error {
	d := deliveries{}
	for src := range mail {
		for i := range mail[src] {
			d = append(d, &mail[src][i])
		}
	}
	for _, o := range r.inOrder() {
		switch {
		case !o.received():
		case (o.err != nil) != (o.st.Len > int64(len(o.buf))):
			return fail("content", "rank %d: truncated without need, or not truncated: %s", r.id, o)
		case o.st.Source < 0 || o.st.Source >= w.size():
			return fail("content", "rank %d: a message of nobody: %s", r.id, o)
		case !d.assign(o):
			return fail("content", "rank %d got what was never sent, withdrawn, or received before: %s", r.id, o)
		}
	}
	d.sort()
	return nil
}

// couldBe reports whether the message looks like what a receive got.
func (d *delivery) couldBe(recv *op) bool {
	return d.send.tag == recv.st.Tag && int64(len(d.send.content)) == recv.st.Len && bytes.HasPrefix(d.send.content, recv.got())
}

// doubtful reports whether a received message looks like one of the same source that was not
// received, or the reverse, where that need not be a mistake; or like one that may or may not have
// been received.
func (d *delivery) doubtful(mail []delivery) bool {
	return slices.ContainsFunc(mail, func(e delivery) bool {
		revoked := d.send != e.send && (d.send.revoked() || e.send.revoked())
		switch {
		case !d.gone && !revoked:
			return false
		case d.recv != nil:
			return (revoked || e.recv == nil) && e.couldBe(d.recv)
		}
		return e.recv != nil && d.couldBe(e.recv)
	})
}

// announced reports whether a message stays at its sender until it is received.
func (w *world) announced(s *op) bool {
	return s.sync || len(s.content) > w.plan.Params.MaxEager
}

// space is equal for tags that one receive could match, as those of package p2p compare the highest
// bit. Receives of a plan need not.
func space(tag uint64) uint64 {
	if tag&packedBit == 0 {
		return 0
	}
	return tag & contexts.Mask
}

// overtaken finds a message that a lost rank had announced, and a later one that a receive got in
// its place: no receive had been told that the first one is lost, or had it when the later one was
// matched, and no matched probe had taken it for a program that has discarded it since.
func (w *world) overtaken(r *rank, mail []delivery) error {
	for i := range mail {
		s := mail[i].send
		if mail[i].recv != nil || !w.announced(s) || s.ending || s.revoked() || s.retired(r.id) || mail[i].doubtful(mail) || r.failedReceive(s.tag) ||
			slices.Contains(r.dropped, progress.Status{Source: mail[i].src, Tag: s.tag, Len: int64(len(s.content))}) {
			continue
		}
		for j := i + 1; j < len(mail); j++ {
			o := mail[j].recv
			if o != nil && space(mail[j].send.tag) == space(s.tag) && (s.tag^o.tag)&o.mask == 0 && !mail[j].doubtful(mail) && !r.hadBeside(s.tag, o) {
				return fail("overtaken", "rank %d never got, nor was told of, %s, and got a later one: %s", r.id, s, o)
			}
		}
	}
	return nil
}

// hadBeside reports whether a call that its context has ended could have had a message while o was
// matched. Such a call gives its message back: the loss of the sender then ends the next receive.
func (r *rank) hadBeside(tag uint64, o *op) bool {
	return slices.ContainsFunc(r.ops, func(c *op) bool {
		return c.isRecv() && c.call && c.canceled() && (tag^c.tag)&c.mask == 0 && c.order <= o.until && o.order < c.until
	})
}

// missing finds messages that should have been received. Once a world has settled and is drained,
// those are all messages of ranks that are not lost. A lost rank's message whose send succeeded may
// be lost with it, but not if a later one arrived, nor if it was matched, as the success of a
// synchronous send proves. Then a receive that failed must have had it. One behind a message that
// was announced only is dropped with that.
func (w *world) missing(r *rank, src int, mail []delivery) error {
	last := -1 // index of the last received one
	for i := range mail {
		if mail[i].recv != nil {
			last = i
		}
	}
	// What the source had sent when it died.
	arrives := !w.cut[pair(r.id, src)] && w.failingQPs() == 0
	behind := map[uint64]bool{} // spaces of messages that were announced only
	for i := range mail {
		s := mail[i].send
		if mail[i].recv == nil && w.announced(s) {
			behind[space(s.tag)] = true
		}
		switch {
		case behind[space(s.tag)] && !s.sync && w.apart(r.id, src):
		case mail[i].recv != nil, s.revoked(), s.retired(r.id):
		case mail[i].doubtful(mail):
		case !w.apart(r.id, src):
			return fail("lost message", "V18: rank %d never got of rank %d: %s", r.id, src, s)
		case s.done && s.err == nil && (i < last || s.sync || s.flushed && arrives) && !r.failedReceive(s.tag):
			return fail("lost message", "rank %d lost rank %d, and before that a message: %s", r.id, src, s)
		}
	}
	return nil
}

// failedReceive reports whether a failed receive could have had a message.
func (r *rank) failedReceive(tag uint64) bool {
	for _, o := range r.ops {
		failed := o.isRecv() && (o.lost() || o.withdrawn())
		if failed && (tag^o.tag)&o.mask == 0 {
			return true
		}
	}
	return false
}

// history is what the rank saw. Tags contain their source. A receive that had no message when all
// had arrived is included: none of the waiting messages may match it (V18). So is a call that ended
// with its context, since it may have had a message for some time.
func (w *world) history(r *rank, mail [][]delivery) *matchmodel.History {
	h := &matchmodel.History{Messages: make([][]uint64, len(mail))}
	if r.returned() {
		again := slices.ContainsFunc(r.ops, func(o *op) bool { return o.takes && o.call }) // RecvAlloc
		h.Withdrawn, h.Behind = make([][]int, len(mail)), again || w.plan.Params.Tags > 0 || w.limited()
		h.Returns = r.returns()
	}
	at := map[*op]int{}
	for src := range mail {
		w.messages(h, r, src, mail[src], at)
	}
	var orders []int
	for _, o := range r.inOrder() {
		recv := matchmodel.Recv{Source: matchmodel.AnySource, Tag: o.tag, Mask: o.mask, GotSource: o.st.Source, Got: matchmodel.Unmatched}
		got, known := at[o]
		switch {
		case o.received() && known:
			recv.Got, recv.Leaving, recv.From = got, o.ending, o.from
			if w.concerned(r, o) {
				// A loss ends receives too, at a time that is not known.
				recv.Leaving, recv.From = true, 0
			}
		case o.isRecv() && o.unmatched && o.canceled():
		case o.isRecv() && o.call && o.canceled():
			recv.Gone, recv.From, recv.Until = true, o.from, o.until
			if w.vanished(r, o) {
				recv.From = 0
			}
		default:
			continue
		}
		h.Recvs, orders = append(h.Recvs, recv), append(orders, o.order)
	}
	for i := range h.Recvs { // some receives are left out
		recv := &h.Recvs[i]
		recv.From, _ = slices.BinarySearch(orders, recv.From)
		recv.Until, _ = slices.BinarySearch(orders, recv.Until)
	}
	return h
}

// limited reports whether sends were held up for credit at some time.
func (w *world) limited() bool {
	return slices.ContainsFunc(w.ranks, func(r *rank) bool { return r.engine != nil && r.engine.Metrics().HeldUp != 0 })
}

// messages adds what a source has sent to a rank to the history: what was received, and notes its
// number there; and, where receives went back, what may have been withdrawn.
func (w *world) messages(h *matchmodel.History, r *rank, src int, mail []delivery, at map[*op]int) {
	var sent []*op
	var back []bool
	next := 0 // in mail
	for _, s := range w.ranks[src].ops {
		if !s.send || s.peer != r.id {
			continue
		}
		var recv *op
		if next < len(mail) && mail[next].send == s {
			d := &mail[next]
			if recv = d.recv; recv != nil && !d.doubtful(mail) {
				at[recv] = len(sent)
				sent, back = append(sent, s), append(back, false)
			}
			next++
		}
		if h.Withdrawn != nil && recv == nil && s.ending && w.announced(s) {
			sent, back = append(sent, s), append(back, true)
		}
	}
	for i, s := range sent {
		h.Messages[src] = append(h.Messages[src], s.tag)
		if h.Withdrawn == nil {
			continue
		}
		until := 0
		switch {
		case !back[i]:
		case !s.canceled(): // nobody knows when
			until = len(sent)
		default:
			until, _ = slices.BinarySearchFunc(sent, s.over, func(o *op, index int) int { return o.index - index })
		}
		h.Withdrawn[src] = append(h.Withdrawn[src], until)
	}
}

// explain checks whether the rules allow what a rank saw. Where receives could have had each
// other's messages, since they show little of them, or one of them went back to its place, a
// message may have been received by the later of them.
func (w *world) explain(r *rank, mail [][]delivery) error {
	err := matchmodel.Check(w.history(r, mail))
	if err == nil || r.returned() && errors.Is(err, matchmodel.ErrUndecided) {
		return nil
	}
	for src := range mail {
		for i := range mail[src] {
			for j := range mail[src][:i] {
				m, n := &mail[src][i], &mail[src][j]
				if !w.resemble(r, m, n) {
					continue
				}
				m.recv, n.recv = n.recv, m.recv
				if matchmodel.Check(w.history(r, mail)) == nil {
					return nil
				}
				m.recv, n.recv = n.recv, m.recv
			}
		}
	}
	return err
}

// wentBack reports whether a receive may have gone back to its place: some of its rank have, and it
// matches a message that its sender has asked to have back, which stayed there until it was
// received.
func (w *world) wentBack(r *rank, o *op) bool {
	return r.returned() && slices.ContainsFunc(w.ranks, func(p *rank) bool {
		return slices.ContainsFunc(p.ops, func(s *op) bool {
			return s.send && s.peer == r.id && s.ending && w.announced(s) && (s.tag^o.tag)&o.mask == 0
		})
	})
}

// vanished reports whether a receive may have had a message that is left out of the history: then
// it is as if it had ended.
func (w *world) vanished(r *rank, o *op) bool {
	return slices.ContainsFunc(w.ranks, func(p *rank) bool {
		return slices.ContainsFunc(p.ops, func(s *op) bool {
			accepted := s.send && s.peer == r.id && !s.refused() && (s.tag^o.tag)&o.mask == 0
			return accepted && (w.apart(r.id, p.id) || s.err != nil || s.retired(r.id))
		})
	})
}
