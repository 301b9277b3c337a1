// Package matchmodel is a naive model of MPI's matching rules, and decides whether what a receiver saw is something that those
// rules allow.
//
// Concurrency: pure functions on their arguments. This package carries no compatibility promise yet.
//
// A receiver sees messages of several sources. Those of one source arrive in the order of sending, those of different
// sources in any order, and receives are posted in between. For one interleaving matching is deterministic: an arriving
// message goes to the first posted receive that accepts it, a posted receive takes the first arrived message that it accepts.
// Check searches for an interleaving that gives exactly the observed outcome.
//
// A receive that ended cancelled, and a message that was withdrawn, are left out by the caller: neither was ever first in
// line for the other side, so the rest behaves as if they had not been.
package matchmodel

import (
	"fmt"
	"slices"
	"strings"
)

// AnySource in Recv.Source accepts every source.
const AnySource = -1

// Unmatched in Recv.Got says that the receive was still posted at the end.
const Unmatched = -1

// Recv is a receive in posting order, with its outcome.
type Recv struct {
	Source    int // or AnySource
	Tag, Mask uint64
	// Got and GotSource name the message taken: the Got-th of Messages[GotSource]. Got may be Unmatched.
	GotSource, Got int
}

func (r *Recv) accepts(src int, tag uint64) bool {
	return (r.Source == AnySource || r.Source == src) && (tag^r.Tag)&r.Mask == 0
}

// History is what one receiver saw.
type History struct {
	Recvs    []Recv
	Messages [][]uint64 // by source: the tags, in the order of sending
}

// message is one of History.Messages.
type message struct{ src, seq int }

// search is a depth-first search over interleavings. Its state is how far each source and the receives have come, and
// which messages wait unexpected, in their order of arrival.
type search struct {
	h      *History
	taker  map[message]int // observed: which receive took a message
	next   []int           // by source: messages that have arrived
	posted int
	unexp  []message
	seen   map[string]bool // states known to lead nowhere
}

// maxCount bounds receives, sources and messages of one source: the search is exponential in the worst case.
const maxCount = 255

// maxStates bounds the search: states known to lead nowhere. One that the rules allow meets hardly any of them, a wrong one can
// have more than there is memory for.
const maxStates = 1 << 16

// Check returns nil if the rules allow h, else an error that describes it. A history with more than 255 receives, sources, or
// messages of one source is refused, and so is one for which no interleaving is found in 65536 states.
func Check(h *History) error {
	if len(h.Recvs) > maxCount || len(h.Messages) > maxCount || slices.ContainsFunc(h.Messages, func(m []uint64) bool { return len(m) > maxCount }) {
		return fmt.Errorf("history too large to check: at most %d receives, sources and messages of a source", maxCount)
	}
	s := &search{h: h, taker: map[message]int{}, next: make([]int, len(h.Messages)), seen: map[string]bool{}}
	for i := range h.Recvs {
		r := &h.Recvs[i]
		if r.Got == Unmatched {
			continue
		}
		if r.GotSource < 0 || r.GotSource >= len(h.Messages) || r.Got < 0 || r.Got >= len(h.Messages[r.GotSource]) {
			return fmt.Errorf("receive %d got message %d of source %d, which was never sent", i, r.Got, r.GotSource)
		}
		m := message{r.GotSource, r.Got}
		if j, ok := s.taker[m]; ok {
			return fmt.Errorf("receives %d and %d both got message %d of source %d", j, i, m.seq, m.src)
		}
		if !r.accepts(m.src, s.tag(m)) {
			return fmt.Errorf("receive %d got message %d of source %d, which it does not accept", i, m.seq, m.src)
		}
		s.taker[m] = i
	}
	if !s.run() {
		if len(s.seen) == maxStates {
			return fmt.Errorf("no interleaving found in %d states that explains this history:\n%s", maxStates, h)
		}
		return fmt.Errorf("no interleaving explains this history:\n%s", h)
	}
	return nil
}

func (s *search) tag(m message) uint64 { return s.h.Messages[m.src][m.seq] }

// run reports whether some interleaving from here on explains the rest.
func (s *search) run() bool {
	if s.done() {
		return true
	}
	key := s.key()
	if s.seen[key] || len(s.seen) == maxStates {
		return false
	}
	if s.post() || s.arriveAny() {
		return true
	}
	if len(s.seen) < maxStates {
		s.seen[key] = true
	}
	return false
}

func (s *search) done() bool {
	if s.posted < len(s.h.Recvs) {
		return false
	}
	for src, n := range s.next {
		if n < len(s.h.Messages[src]) {
			return false
		}
	}
	return true
}

// post tries the next receive's posting.
func (s *search) post() bool {
	if s.posted == len(s.h.Recvs) {
		return false
	}
	r := &s.h.Recvs[s.posted]
	at := -1
	for i, m := range s.unexp {
		if r.accepts(m.src, s.tag(m)) {
			at = i
			break
		}
	}
	if at < 0 {
		if r.Got != Unmatched && r.Got < s.next[r.GotSource] {
			return false // its message has come and gone to somebody else
		}
		s.posted++
		ok := s.run()
		s.posted--
		return ok
	}
	if r.Got == Unmatched || s.unexp[at] != (message{r.GotSource, r.Got}) {
		return false
	}
	old := s.unexp
	s.unexp = append(append([]message(nil), old[:at]...), old[at+1:]...)
	s.posted++
	ok := s.run()
	s.posted--
	s.unexp = old
	return ok
}

func (s *search) arriveAny() bool {
	for src := range s.next {
		if s.next[src] < len(s.h.Messages[src]) && s.arrive(src) {
			return true
		}
	}
	return false
}

// arrive tries the arrival of src's next message.
func (s *search) arrive(src int) bool {
	m := message{src, s.next[src]}
	taker, taken := s.taker[m]
	first := s.firstPosted(m)
	switch {
	case first >= 0 && (!taken || taker != first):
		return false // the model gives it to a receive that did not get it
	case first < 0 && taken && taker < s.posted:
		return false // its receive was posted before and is not waiting any more
	}
	s.next[src]++
	old := s.unexp
	if first < 0 {
		s.unexp = append(append([]message(nil), old...), m)
	}
	ok := s.run()
	s.unexp = old
	s.next[src]--
	return ok
}

// firstPosted is the first posted receive that waits and accepts m, or -1. A posted receive waits as long as its message
// has not arrived.
func (s *search) firstPosted(m message) int {
	for i := range s.posted {
		r := &s.h.Recvs[i]
		waits := r.Got == Unmatched || r.Got >= s.next[r.GotSource]
		if waits && r.accepts(m.src, s.tag(m)) {
			return i
		}
	}
	return -1
}

// key names a state; Check has made sure that every count fits in a byte.
func (s *search) key() string {
	b := make([]byte, 0, 64)
	b = append(b, byte(s.posted))
	for _, n := range s.next {
		b = append(b, byte(n))
	}
	for _, m := range s.unexp {
		b = append(b, byte(m.src), byte(m.seq))
	}
	return string(b)
}

// String lists the history for people.
func (h *History) String() string {
	var b strings.Builder
	for src, tags := range h.Messages {
		fmt.Fprintf(&b, "source %d sent tags %x\n", src, tags)
	}
	for i, r := range h.Recvs {
		fmt.Fprintf(&b, "receive %d: source %d tag %x mask %x got ", i, r.Source, r.Tag, r.Mask)
		if r.Got == Unmatched {
			b.WriteString("nothing\n")
			continue
		}
		fmt.Fprintf(&b, "message %d of source %d\n", r.Got, r.GotSource)
	}
	return b.String()
}
