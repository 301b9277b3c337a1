//go:build invariants

package flow

import (
	"slices"

	"github.com/tagmatch/tagmatch/internal/invariant"
	"github.com/tagmatch/tagmatch/matching"
)

// Check checks what is held up to a rank that is there.
func (s *Sender[T]) Check(rank int) {
	invariant.Check(!s.Empty() || !s.HeldUp() && len(s.wants) == 0 && !s.all, "list", "nothing is held up to rank %d, episode %d", rank, s.episode)
	invariant.Check(len(s.wants) <= Slots, "list", "rank %d has told %d WANTs", rank, len(s.wants))
	if !s.Empty() {
		s.queue.check(rank)
	}
}

// May reports whether the first send may go, where it need not have credit.
func (s *Sender[T]) May() bool { return !s.Empty() && (!s.HeldUp() || s.Permitted()) }

// Waits reports whether a send is in the queue under this number.
func (s *Sender[T]) Waits(number uint64, send *T) bool {
	if s.Empty() {
		return false
	}
	p := s.queue.find(number)
	return p.number == number && p.send == send
}

// check checks the ring, and the index against it.
func (q *queue[T]) check(rank int) {
	all := slices.Collect(q.all())
	invariant.Check(len(all) == q.n, "list", "%d sends to rank %d wait, %d are counted", len(all), rank, q.n)
	last := uint64(0)
	for k := q.head; k != q.tail; k++ {
		p := q.at(k)
		invariant.Check(p.number > last && p.number <= q.last, "list", "a send to rank %d has number %d behind %d of %d", rank, p.number, last, q.last)
		last = p.number
	}
	if !q.indexed {
		return
	}
	invariant.Check(q.index.Len() == q.n, "list", "%d sends to rank %d wait, the index has %d", q.n, rank, q.index.Len())
	next := q.head
	for h, send := range q.index.All() {
		for q.at(next).send == nil {
			next++
		}
		p := q.at(next)
		invariant.Check(p.send == send && p.h == h, "list", "the index of sends to rank %d is not in their order", rank)
		next++
	}
}

// Check checks what a peer may send, of which messages are kept that have cost so much.
func (r *Receiver) Check(kept uint64, lost bool) {
	r.Account.Check(r.Rank, kept, lost)
	invariant.Check(len(r.wants) <= Slots, "list", "rank %d was told %d WANTs", r.Rank, len(r.wants))
	invariant.Check(r.HeldUp() == slices.Contains(r.memory.heldUp, r), "list", "rank %d: held up is %v", r.Rank, r.HeldUp())
}

// Named reports whether a receive that waits need not be named to the peer any more.
func (r *Receiver) Named(h matching.Handle) bool {
	return !r.HeldUp() || r.all || slices.ContainsFunc(r.wants, func(w sentWant) bool { return w.handle == h })
}

// Waits reports whether something is due to the peer.
func (r *Receiver) Waits(settled bool) bool {
	_, due := r.Due(settled)
	return due
}
