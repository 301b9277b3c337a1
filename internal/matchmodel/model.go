// Package matchmodel is a naive model of MPI's matching rules: it decides whether those rules allow
// what a receiver saw.
//
// Concurrency: pure functions on their arguments.
//
// A receiver gets messages of several sources. Those of one source arrive in the order of sending,
// those of different sources in any order, and receives are posted in between. For one interleaving
// matching is deterministic: an arriving message goes to the first posted receive that matches it,
// a posted receive takes the first arrived message that it matches. Check searches for an
// interleaving with exactly the observed outcome.
//
// The caller leaves out receives that ended cancelled: none was ever first in line for another, so
// the rest behaves as without them. A receive that may have had a message, and was cancelled with
// it, is not left out: other receives could not get that message meanwhile. Nor is a message that
// was withdrawn, where a receive may have had it for a time: see away.go.
package matchmodel

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// AnySource in Recv.Source matches every source.
const AnySource = -1

// Unmatched in Recv.Got means that the receive was still posted at the end.
const Unmatched = -1

// Recv is a receive in posting order, with its outcome.
type Recv struct {
	Source    int // or AnySource
	Tag, Mask uint64
	// Got and GotSource name the message taken: the Got-th of Messages[GotSource]. Got may be
	// Unmatched.
	GotSource, Got int

	// Gone: the receive ended without a message when at least From and at most Until receives had
	// been posted. If it had matched a message, that returned to its old place among the unexpected
	// ones, which is legal only while no posted receive matches it.
	Gone        bool
	From, Until int

	// Leaving: the receive was asked to end when From receives had been posted, but completed. Its
	// owner may have learned that later: from then on it need not keep another receive from
	// returning its message.
	Leaving bool
}

func (r *Recv) accepts(src int, tag uint64) bool {
	return (r.Source == AnySource || r.Source == src) && (tag^r.Tag)&r.Mask == 0
}

// History is what one receiver saw.
type History struct {
	Recvs    []Recv
	Messages [][]uint64 // by source: the tags, in the order of sending

	// Withdrawn says of these messages, where it has them, how many messages their senders had sent
	// when they had them back; 0 is not withdrawn. A receive may have had such a message until
	// then. It went back to its place; with Behind perhaps behind the receives that were posted.
	// That has happened Returns times at most.
	Withdrawn [][]int
	Behind    bool
	Returns   int
}

// message is one of History.Messages.
type message struct{ src, seq int }

// search is a depth-first search over interleavings. Its state is how many messages of each source
// have arrived, how many receives are posted, and which messages are unexpected, in the order of
// arrival.
type search struct {
	h      *History
	taker  map[message]int // observed: the receive of a message
	next   []int           // by source: number of arrived messages
	posted int
	unexp  []message
	seen   map[string]bool // states without a solution
	most   int             // of them, maxStates

	late    bool            // try cancelled receives as late as possible, not as early
	gone    []int           // the receives with Gone
	over    map[int]bool    // those of gone that have ended
	held    map[int]message // messages that receives in gone hold
	holder  map[message]int // the inverse of held
	arrived map[message]int // when: gives a returned message its old place

	returns int              // how many receives more may have a withdrawn message
	away    map[int]message  // receives that have a message which is withdrawn later
	used    map[message]bool // withdrawn messages that a receive has, or had
	behind  []behind         // receives that went back behind others
}

// maxCount bounds receives, sources and messages of one source: the search is exponential in the
// worst case.
const maxCount = 255

// maxStates bounds the search, in states without a solution. A legal history needs few of them, an
// illegal one can have more than there is memory for.
const maxStates = 1 << 18

// ErrUndecided is the error of Check where it has not searched all interleavings.
var ErrUndecided = errors.New("no interleaving found")

// Check returns nil if the rules allow h, else an error that describes it. It refuses a history
// with more than 255 receives, sources, or messages of one source, and one for which it finds no
// interleaving in 262144 states.
func Check(h *History) error { return check(h, maxStates) }

func check(h *History, most int) error {
	if len(h.Recvs) > maxCount || len(h.Messages) > maxCount || slices.ContainsFunc(h.Messages, func(m []uint64) bool { return len(m) > maxCount }) {
		return fmt.Errorf("history too large to check: at most %d receives, sources and messages of a source", maxCount)
	}
	s := &search{h: h, most: most, taker: map[message]int{}, next: make([]int, len(h.Messages)), seen: map[string]bool{},
		over: map[int]bool{}, held: map[int]message{}, holder: map[message]int{}, arrived: map[message]int{}, away: map[int]message{}, used: map[message]bool{}}
	for i := range h.Recvs {
		r := &h.Recvs[i]
		if r.Gone {
			s.gone = append(s.gone, i)
		}
		if r.Gone || r.Got == Unmatched {
			continue
		}
		if r.GotSource < 0 || r.GotSource >= len(h.Messages) || r.Got < 0 || r.Got >= len(h.Messages[r.GotSource]) {
			return fmt.Errorf("receive %d got message %d of source %d, which was never sent", i, r.Got, r.GotSource)
		}
		m := message{r.GotSource, r.Got}
		if s.withdrawn(m) {
			return fmt.Errorf("receive %d got message %d of source %d, which was withdrawn", i, r.Got, r.GotSource)
		}
		if j, ok := s.taker[m]; ok {
			return fmt.Errorf("receives %d and %d both got message %d of source %d", j, i, m.seq, m.src)
		}
		if !r.accepts(m.src, s.tag(m)) {
			return fmt.Errorf("receive %d got message %d of source %d, which it does not accept", i, m.seq, m.src)
		}
		s.taker[m] = i
	}
	if h.Returns > 0 {
		s.most /= 8 // there are many searches
	}
	var err error
	for ; s.returns <= h.Returns; s.returns++ { // few suffice mostly
		switch found := s.both(); {
		case found == nil:
			return nil
		case err == nil || errors.Is(found, ErrUndecided):
			err = found
		}
	}
	return err
}

// both searches in both orders: if one finds nothing in time, the other may.
func (s *search) both() error {
	for _, s.late = range []bool{false, true} {
		clear(s.seen)
		switch {
		case s.run():
			return nil
		case len(s.seen) < s.most:
			return fmt.Errorf("no interleaving explains this history:\n%s", s.h)
		}
	}
	return fmt.Errorf("%w in %d states that explains this history:\n%s", ErrUndecided, s.most, s.h)
}

func (s *search) tag(m message) uint64 { return s.h.Messages[m.src][m.seq] }

// run reports whether some interleaving from this state explains the rest.
func (s *search) run() bool {
	if s.done() {
		return true
	}
	key := s.key()
	if s.seen[key] || len(s.seen) == s.most {
		return false
	}
	if s.post() || s.late && s.arriveAny() || s.endAny() || !s.late && s.arriveAny() || s.backAny() {
		return true
	}
	if len(s.seen) < s.most {
		s.seen[key] = true
	}
	return false
}

func (s *search) done() bool {
	if s.posted < len(s.h.Recvs) || len(s.over) < len(s.gone) || len(s.away) != 0 {
		return false
	}
	for src, n := range s.next {
		if n < len(s.h.Messages[src]) {
			return false
		}
	}
	return true
}

// post tries to post the next receive.
func (s *search) post() bool {
	if s.posted == len(s.h.Recvs) || slices.ContainsFunc(s.gone, func(i int) bool { return i < s.posted && !s.over[i] && s.h.Recvs[i].Until <= s.posted }) {
		return false
	}
	s.posted++
	ok := s.look(s.posted - 1)
	s.posted--
	return ok
}

// look tries what a receive that is posted, or goes back, may find: the oldest message that it
// matches, or nothing.
func (s *search) look(recv int) bool {
	r := &s.h.Recvs[recv]
	at := slices.IndexFunc(s.unexp, func(m message) bool { return r.accepts(m.src, s.tag(m)) })
	if at < 0 {
		return s.waits(r) && s.run() || s.lookAway(recv, len(s.arrived)) // else its message has gone to another receive
	}
	m := s.unexp[at]
	if !r.Gone && (r.Got == Unmatched || m != (message{r.GotSource, r.Got})) {
		return s.lookAway(recv, s.arrived[m])
	}
	old := s.unexp
	s.unexp = slices.Delete(slices.Clone(old), at, at+1)
	ok := s.holding(recv, m, s.run)
	s.unexp = old
	return ok || s.lookAway(recv, s.arrived[m])
}

// holding continues with a message held by a receive, which keeps it only if it ends without one.
func (s *search) holding(recv int, m message, then func() bool) bool {
	if !s.h.Recvs[recv].Gone {
		return then()
	}
	s.held[recv], s.holder[m] = m, recv
	ok := then()
	delete(s.held, recv)
	delete(s.holder, m)
	return ok
}

// arriveAny tries the next messages of all sources, those of earlier receives first: with many
// wildcard receives few other orders succeed.
func (s *search) arriveAny() bool {
	var next []message
	for src, n := range s.next {
		if n < len(s.h.Messages[src]) {
			next = append(next, message{src, n})
		}
	}
	slices.SortStableFunc(next, func(a, b message) int { return cmp.Compare(s.receiver(a), s.receiver(b)) })
	return slices.ContainsFunc(next, func(m message) bool { return s.arrive(m.src) })
}

// receiver is the receive of a message; messages without one come last, but withdrawn ones, which
// need none, first.
func (s *search) receiver(m message) int {
	if s.withdrawn(m) {
		return -1
	}
	if r, ok := s.taker[m]; ok {
		return r
	}
	return len(s.h.Recvs)
}

// arrive tries the arrival of src's next message.
func (s *search) arrive(src int) bool {
	m := message{src, s.next[src]}
	if s.before(m) {
		return false
	}
	first := s.firstPosted(m)
	s.next[src]++
	s.arrived[m] = len(s.arrived)
	ok := false
	if s.withdrawn(m) {
		ok = s.run() || first >= 0 && s.leave(first, m)
	} else {
		ok = s.offer(m, first)
	}
	delete(s.arrived, m)
	s.next[src]--
	return ok
}

// offer continues with a message that matches receive first, or none.
func (s *search) offer(m message, first int) bool {
	taker, taken := s.taker[m]
	switch {
	case first >= 0 && s.h.Recvs[first].Gone:
		return s.holding(first, m, s.run)
	case first >= 0:
		return taken && taker == first && s.run() // else the wrong receive took it
	case taken && taker < s.posted && !s.isAway(taker):
		return false // its receive was posted before and does not wait
	}
	old := s.unexp
	at := slices.IndexFunc(old, func(u message) bool { return s.arrived[u] > s.arrived[m] })
	if at < 0 {
		at = len(old)
	}
	s.unexp = slices.Insert(slices.Clone(old), at, m)
	ok := !s.hopeless(at) && s.run()
	s.unexp = old
	return ok
}

// hopeless reports whether the unexpected message at index at can never reach its receive, because
// an earlier receive that is still to be posted matches it: that must match its own message before.
// A message that a receive may hold for a time is not hopeless.
func (s *search) hopeless(at int) bool {
	m := s.unexp[at]
	if s.mayHold(m) {
		return false
	}
	for i := s.posted; i < s.receiver(m); i++ {
		r := &s.h.Recvs[i]
		if r.Gone || !r.accepts(m.src, s.tag(m)) || s.mayLeave(r) {
			continue
		}
		if r.Got == Unmatched {
			return true
		}
		if when, ok := s.arrived[message{r.GotSource, r.Got}]; !ok || when > s.arrived[m] {
			return true
		}
	}
	return false
}

// mayHold reports whether a receive that ends without a message may still hold this one.
func (s *search) mayHold(m message) bool {
	return slices.ContainsFunc(s.gone, func(i int) bool { return !s.over[i] && s.h.Recvs[i].accepts(m.src, s.tag(m)) })
}

func (s *search) endAny() bool {
	return slices.ContainsFunc(s.gone, func(i int) bool {
		return i < s.posted && !s.over[i] && s.h.Recvs[i].From <= s.posted && s.end(i)
	})
}

// end tries to end a receive without a message.
func (s *search) end(i int) bool {
	m, holds := s.held[i]
	if holds && s.wanted(m) {
		return false
	}
	s.over[i] = true
	then := s.run
	if had, away := s.away[i]; away { // others may have that message now
		delete(s.away, i)
		delete(s.used, had)
		defer func() { s.away[i], s.used[had] = had, true }()
	}
	if holds {
		delete(s.held, i)
		delete(s.holder, m)
		then = func() bool { return s.offer(m, -1) }
	}
	ok := then()
	delete(s.over, i)
	if holds {
		s.held[i], s.holder[m] = m, i
	}
	return ok
}

// wanted reports whether a posted receive waits that matches m and is not asked to end.
func (s *search) wanted(m message) bool {
	for i := range s.order() {
		if r := &s.h.Recvs[i]; s.could(i, m) && (!r.Leaving || r.From > s.posted) {
			return true
		}
	}
	return false
}

// firstPosted is the first posted receive that waits and matches m, or -1.
func (s *search) firstPosted(m message) int {
	for i := range s.order() {
		if s.could(i, m) {
			return i
		}
	}
	return -1
}

// could reports whether a posted receive waits that matches m.
func (s *search) could(i int, m message) bool {
	r := &s.h.Recvs[i]
	_, holds := s.held[i]
	return !holds && !s.over[i] && !s.isAway(i) && s.waits(r) && r.accepts(m.src, s.tag(m))
}

// waits reports whether a posted receive waits: its message has not arrived, or another receive
// will return it.
func (s *search) waits(r *Recv) bool {
	if r.Got == Unmatched || r.Gone || r.Got >= s.next[r.GotSource] {
		return true
	}
	_, held := s.holder[message{r.GotSource, r.Got}]
	return held
}

// key encodes a state. Check has verified that every receive, source and message of a source fits
// in a byte; the number of unexpected messages may not.
func (s *search) key() string {
	b := make([]byte, 0, 64)
	b = append(b, byte(s.posted))
	for _, n := range s.next {
		b = append(b, byte(n))
	}
	b = binary.AppendUvarint(b, uint64(len(s.unexp)))
	for _, m := range s.unexp {
		b = append(b, byte(m.src), byte(m.seq))
	}
	if s.h.Returns > 0 {
		b = s.awayKey(b)
	}
	if len(s.gone) == 0 {
		return string(b)
	}
	for _, i := range s.gone { // a held message has a place among the unexpected ones
		m, holds := s.held[i]
		switch {
		case holds:
			before := uint64(0)
			for other, at := range s.arrived {
				if _, held := s.holder[other]; at < s.arrived[m] && (held || slices.Contains(s.unexp, other)) {
					before++
				}
			}
			b = binary.AppendUvarint(append(b, 2, byte(m.src), byte(m.seq)), before)
		case s.over[i]:
			b = append(b, 1)
		default:
			b = append(b, 0)
		}
	}
	return string(b)
}

// String lists the history.
func (h *History) String() string {
	var b strings.Builder
	for src, tags := range h.Messages {
		fmt.Fprintf(&b, "source %d sent tags %x", src, tags)
		if src < len(h.Withdrawn) {
			fmt.Fprintf(&b, ", withdrawn until %d", h.Withdrawn[src])
		}
		b.WriteByte('\n')
	}
	for i, r := range h.Recvs {
		fmt.Fprintf(&b, "receive %d: source %d tag %x mask %x got ", i, r.Source, r.Tag, r.Mask)
		if r.Gone {
			fmt.Fprintf(&b, "nothing, and ended after %d to %d receives\n", r.From, r.Until)
			continue
		}
		if r.Got == Unmatched {
			b.WriteString("nothing\n")
			continue
		}
		fmt.Fprintf(&b, "message %d of source %d\n", r.Got, r.GotSource)
	}
	return b.String()
}
