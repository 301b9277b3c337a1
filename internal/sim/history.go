package sim

import (
	"bytes"
	"cmp"
	"errors"
	"slices"

	"github.com/tagmatch/tagmatch/internal/matchmodel"
	"github.com/tagmatch/tagmatch/progress"
)

// A history is what one rank saw, in terms of internal/matchmodel. What a loss has ended stays out,
// which changes nothing for the rest: a receive that failed had no message, or had one and failed
// with it, as if neither had been; a message of a lost rank that nobody got was never first in line
// for a receive that got another. So that this cannot hide a message that was dropped, missing
// tells which of those must have been got all the same. Where a message of a lost rank was got, and
// one that looks the same was not, nobody knows which of the two it was: that pair of message and
// receive stays out likewise.

// delivery is a message to a rank and the receive that got it.
type delivery struct {
	src   int
	send  *op
	recv  *op  // nil: nobody
	taken *op  // the receive that had it when it was taken back
	apart bool // the two ranks have lost each other
}

// checkHistory compares what a rank received with what was sent to it and with the model of
// matching. Where a rank was stopped midway, what was under way is not part of it: that changes as
// little as what a loss ends.
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
	}
	return nil
}

// inOrder is a rank's operations, its receives as they were posted, or posted again.
func (r *rank) inOrder() []*op {
	ops := slices.Clone(r.ops)
	slices.SortStableFunc(ops, func(a, b *op) int { return cmp.Compare(a.order, b.order) })
	return ops
}

// mail lists the messages to a rank by source, in the order of sending. Those that were withdrawn
// or refused are none.
func (w *world) mail(r *rank) [][]delivery {
	mail := make([][]delivery, w.size())
	for src, p := range w.ranks {
		for _, o := range p.ops {
			if o.send && o.peer == r.id && !o.canceled() && !o.refused() {
				mail[src] = append(mail[src], delivery{src: src, send: o, apart: w.apart(r.id, src)})
			}
		}
	}
	return mail
}

// deliver finds the message that each receive got, or had when it was taken back. Messages that
// cannot be told apart, short ones of one tag, are taken in the order of sending: any other order
// would be a mistake, since every receive that accepts one of them accepts all.
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
		case !d.assign(claim{op: o}):
			return fail("content", "rank %d got what was never sent, withdrawn, or received before: %s", r.id, o)
		}
	}
	for _, o := range r.took {
		if !d.assign(claim{op: o, taken: true}) {
			return fail("error", "rank %d: nobody has withdrawn its message: %s", r.id, o)
		}
	}
	d.sort()
	return nil
}

// couldBe tells whether the message looks like what a receive got.
func (d *delivery) couldBe(recv *op) bool {
	return d.send.tag == recv.st.Tag && int64(len(d.send.content)) == recv.st.Len && bytes.HasPrefix(d.send.content, recv.got())
}

// doubtful tells whether a message that was got looks like one of the same source that was not, or
// the other way round, where that need not be a mistake; or whether it looks like one of which
// nobody knows whether it was to be got.
func (d *delivery) doubtful(mail []delivery) bool {
	return slices.ContainsFunc(mail, func(e delivery) bool {
		revoked := d.send != e.send && (d.send.revoked() || e.send.revoked())
		switch {
		case !d.apart && !revoked:
			return false
		case d.recv != nil:
			return (revoked || e.recv == nil) && e.couldBe(d.recv)
		}
		return e.recv != nil && d.couldBe(e.recv)
	})
}

// missing finds messages that somebody should have got. Once a world is at rest and drained that is
// all of a rank that is not lost. Of one that is lost, a message whose sender was told that it is
// sent may be on its way no more: but not if a later one arrived, nor if it was matched, which
// synchronous sends tell. Then a receive that failed must have had it.
func (w *world) missing(r *rank, src int, mail []delivery) error {
	last := -1 // of those that were received
	for i := range mail {
		if mail[i].recv != nil {
			last = i
		}
	}
	// What the source had sent when it died.
	arrives := !w.cut[pair(r.id, src)] && w.failingQPs() == 0
	for i := range mail {
		s := mail[i].send
		switch {
		case mail[i].recv != nil, s.revoked():
		case mail[i].doubtful(mail):
		case !w.apart(r.id, src):
			return fail("lost message", "V18: rank %d never got of rank %d: %s", r.id, src, s)
		case s.done && s.err == nil && (i < last || s.sync || s.flushed && arrives) && !r.failedReceive(s.tag):
			return fail("lost message", "rank %d lost rank %d, and before that a message: %s", r.id, src, s)
		}
	}
	return nil
}

// failedReceive tells whether a receive that failed could have had a message.
func (r *rank) failedReceive(tag uint64) bool {
	for _, o := range r.ops {
		failed := o.isRecv() && (o.lost() || errors.Is(o.err, progress.ErrWithdrawn))
		if failed && (tag^o.tag)&o.mask == 0 {
			return true
		}
	}
	return false
}

// history is what rank saw. Tags name their source, so that the model needs no other word of it. A
// receive that was left without a message when all had arrived is part of it: none of those that
// waited may have been for it (V18). So is one whose call has ended with its context, since it may
// have had a message for some time.
func (w *world) history(r *rank, mail [][]delivery) *matchmodel.History {
	h := &matchmodel.History{Messages: make([][]uint64, len(mail))}
	at := map[*op]int{}
	for src := range mail {
		for i := range mail[src] {
			if d := &mail[src][i]; d.recv != nil && !d.doubtful(mail[src]) {
				at[d.recv] = len(h.Messages[src])
				h.Messages[src] = append(h.Messages[src], d.send.tag)
			}
		}
	}
	var orders []int
	for _, o := range r.inOrder() {
		recv := matchmodel.Recv{Source: matchmodel.AnySource, Tag: o.tag, Mask: o.mask, GotSource: o.st.Source, Got: matchmodel.Unmatched}
		got, known := at[o]
		switch {
		case o.received() && known:
			recv.Got, recv.Leaving, recv.From = got, o.leaving, o.from
			if w.concerned(r, o) {
				// A loss ends receives too, at a time that is not known.
				recv.Leaving, recv.From = true, 0
			}
		case o.isRecv() && o.left && o.canceled():
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
	for i := range h.Recvs { // some receives are not there
		recv := &h.Recvs[i]
		recv.From, _ = slices.BinarySearch(orders, recv.From)
		recv.Until, _ = slices.BinarySearch(orders, recv.Until)
	}
	return h
}

// explain finds out whether the rules allow what a rank saw. Where receives that know little of
// their messages could have had each other's, one that was given back may have come to the later of
// them.
func (w *world) explain(r *rank, mail [][]delivery) error {
	err := matchmodel.Check(w.history(r, mail))
	if err == nil {
		return nil
	}
	for src := range mail {
		for i := range mail[src] {
			for j := range mail[src][:i] {
				m, n := &mail[src][i], &mail[src][j]
				if !m.resembles(n) {
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

// vanished tells whether a receive may have had a message that is not part of the history, and so
// was as if it had ended.
func (w *world) vanished(r *rank, o *op) bool {
	return slices.ContainsFunc(w.ranks, func(p *rank) bool {
		return slices.ContainsFunc(p.ops, func(s *op) bool {
			accepted := s.send && s.peer == r.id && !s.refused() && (s.tag^o.tag)&o.mask == 0
			return accepted && (w.apart(r.id, p.id) || s.err != nil)
		})
	})
}
