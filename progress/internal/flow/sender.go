package flow

import (
	"iter"
	"slices"
)

// Sender holds up the sends to one peer, of type T. Credit is in bytes since the start.
type Sender[T any] struct {
	charged uint64 // credit used by the messages that were sent
	allowed uint64 // credit in all, as far as this rank knows

	queue         queue[T] // sends that wait
	episode, told uint32   // of the queue, and of the last HELD that was told
	wants         []Want   // of this episode, in order of arrival, that no message has used up; at most Slots
	all           bool     // the peer wants the whole queue
}

// Init begins without credit. Until the peer is connected, and has given the first by Allow, sends
// wait in the queue, and are not held up. The seed is that of hash tables.
func (s *Sender[T]) Init(seed uint64) { s.queue.seed = seed }

// Empty reports whether no send waits.
func (s *Sender[T]) Empty() bool { return s.queue.n == 0 }

// HeldUp reports whether the sends that wait do so for credit.
func (s *Sender[T]) HeldUp() bool { return odd(s.episode) }

// Len is how many sends wait.
func (s *Sender[T]) Len() int { return s.queue.n }

// Sends gives the sends that wait, in order. The body must not change them.
func (s *Sender[T]) Sends() iter.Seq[*T] { return s.queue.all() }

// Part gives up to most of the sends that wait, in order, with a number of at least from. The next
// part begins with the number that it returns; 0: there is none. Between two parts sends may come
// and go.
func (s *Sender[T]) Part(from uint64, most int, visit func(*T)) (next uint64) {
	return s.queue.part(from, most, visit)
}

// Wants is for how many receives of the peer the sender has a WANT.
func (s *Sender[T]) Wants() int { return len(s.wants) }

// Left is the credit that is left, below 0 where the peer asked for more.
func (s *Sender[T]) Left() int64 { return int64(s.allowed - s.charged) }

// Charged is the credit that was used in all: not 0 once anything was sent.
func (s *Sender[T]) Charged() uint64 { return s.charged }

// Allowed is the credit in all, as far as this rank has been told.
func (s *Sender[T]) Allowed() uint64 { return s.allowed }

// Episode is odd while the sends that wait do so for credit, and grows with each change.
func (s *Sender[T]) Episode() uint32 { return s.episode }

// Covers reports whether credit covers a message.
func (s *Sender[T]) Covers(cost uint64) bool { return s.charged+cost <= s.allowed }

// Allow takes the credit that the peer gives in all; an older one changes nothing.
func (s *Sender[T]) Allow(credit uint64) { s.allowed = max(s.allowed, credit) }

// Charge is for a message that was sent while no other waited.
func (s *Sender[T]) Charge(cost uint64) { s.charged += cost }

// Push appends a send to the queue. The number names it there. next reports whether Next is to be
// asked: not where the send waits behind others for what they wait for.
func (s *Sender[T]) Push(tag uint64, send *T) (number uint64, next bool) {
	number = s.queue.push(tag, send)
	if !s.HeldUp() {
		return number, s.queue.n == 1 // else one in front of it waits for room in the transport
	}
	return number, s.all || slices.ContainsFunc(s.wants, func(w Want) bool { return matches(w.Tag, w.Mask, tag) })
}

// First is the send that has waited longest, where one waits.
func (s *Sender[T]) First() *T { return s.queue.at(s.queue.head).send }

// Permitted reports whether a WANT lets the first send go without credit.
func (s *Sender[T]) Permitted() bool {
	return s.HeldUp() && (s.all || slices.ContainsFunc(s.wants, func(w Want) bool { return s.queue.has(w.Tag, w.Mask) }))
}

// Hold follows that neither credit nor a WANT lets the first send go. It reports whether an episode
// begins by it.
func (s *Sender[T]) Hold() bool {
	if s.HeldUp() {
		return false
	}
	s.episode++
	return true
}

// Remove takes a send out of the queue, wherever it is: it was sent, or has ended. What is behind
// it may go then.
func (s *Sender[T]) Remove(number uint64) { s.queue.remove(number) }

// Sent charges a message that was sent, and uses up the first WANT that it matches. It reports
// whether it went beyond credit.
func (s *Sender[T]) Sent(tag, cost uint64) (released bool) {
	released = s.HeldUp() && !s.Covers(cost)
	s.charged += cost
	if i := slices.IndexFunc(s.wants, func(w Want) bool { return matches(w.Tag, w.Mask, tag) }); i >= 0 {
		s.wants = slices.Delete(s.wants, i, i+1)
	}
	return released
}

// Drained follows that the queue has become empty. It reports whether an episode ends by it.
func (s *Sender[T]) Drained() bool {
	if !s.HeldUp() {
		return false
	}
	s.episode++
	s.wants, s.all = s.wants[:0], false
	return true
}

// Due is the HELD that the peer is to be told, if there is one: only the newest episode counts. Of
// one that is over before its HELD was told the peer need not know.
func (s *Sender[T]) Due() (h Held, due bool) {
	return Held{s.episode, s.allowed, s.charged}, s.told != s.episode && (s.HeldUp() || odd(s.told))
}

// Told follows that the HELD which was due is under way.
func (s *Sender[T]) Told() { s.told = s.episode }

// Want takes a WANT of the peer. Next is to be asked after it.
func (s *Sender[T]) Want(w Want) {
	s.Allow(w.Allowed)
	if !s.HeldUp() || w.Episode != s.episode {
		return // it is of an episode that is over
	}
	switch {
	case w.Slot == All:
		s.all = true
	case w.Slot < Slots:
		s.wants = slices.DeleteFunc(s.wants, func(v Want) bool { return v.Slot == w.Slot })
		s.wants = append(s.wants, w)
	}
}

// Close follows the loss of the peer: it is told nothing any more.
func (s *Sender[T]) Close() { s.told = s.episode }
