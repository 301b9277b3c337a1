package rendezvous

import (
	"context"
	"slices"
	"sync"
	"time"
)

// A rank asks all ranks something, itself included: ASK goes to rank 0, which passes it on, and
// each REPLY comes back through rank 0. Nothing else depends on it, and it waits for nobody: rank 0
// replies for those that are gone, and who does not reply in time is left out.
//
// A process that is stopped reads nothing, and what fills its connection would end that. So a rank
// has at most mostAsked questions that it has not replied to, and so has rank 0: each ASK comes
// back to who asked, which says that rank 0 has taken it.
//
// A rank may ask without pause, in error or in malice. Of one rank another one has at most
// mostOfOne questions, so that others can ask too, and after each answer it rests for as long as
// that took, at most longestRest. Rank 0 rests too before it takes the next question that another
// rank sends.

// MaxQuestion and MaxReply bound what is asked and answered, in bytes.
const (
	MaxQuestion = 256
	MaxReply    = 64 << 10
)

const (
	mostAsked   = 8
	mostOfOne   = mostAsked / 2
	mostReplies = 8 << 20 // bytes of replies that wait for one asker at rank 0; what comes then is dropped

	longestRest = 100 * time.Millisecond // after an answer
	restPerRank = time.Microsecond       // of rank 0 after a question, which is passed on to each
)

// Reply is the answer of a rank, or Why it has none: then Body is empty.
type Reply struct {
	Rank int
	Body []byte
	Why  string
}

// Why a rank has no answer.
const (
	WhyLeft    = ReasonLeft
	WhyUnheard = "has not replied to what it was asked before"
	WhyDeaf    = "replies to nothing that it is asked"
	WhyEnded   = "its process ended, or its connection was closed without a goodbye" // a part of Why
)

// asking is what an Endpoint asks, and what it is asked.
type asking struct {
	mu       sync.Mutex // guards the fields below
	answer   func(question string) []byte
	next     uint32
	waiting  map[uint32]*inquiry // by number
	untaken  map[uint32]struct{} // numbers of questions that rank 0 has not taken yet
	serving  int                 // answers that are being made
	closed   bool
	making   chan struct{}  // holds a token while an answer is made, and in the rest after it
	over     chan struct{}  // closed by close
	replying sync.WaitGroup // serving, and who rests, as goroutines
}

// inquiry is a question that waits for replies.
type inquiry struct {
	replies []Reply       // that nobody has taken; guarded by asking.mu
	replied []bool        // by rank; likewise
	left    int           // how many may still come; likewise
	came    chan struct{} // has a token where there may be replies
}

// Answer has answer called for each question of a rank, this one included, one at a time, until
// Close. What exceeds MaxReply is not sent.
func (e *Endpoint) Answer(answer func(question string) []byte) {
	e.asking.mu.Lock()
	defer e.asking.mu.Unlock()
	e.asking.answer = answer
}

// Ask asks all ranks, and calls heard with each Reply as it comes, in this goroutine. It returns
// nil when all have replied or heard returns false, else when ctx ends, with its error.
func (e *Endpoint) Ask(ctx context.Context, question string, heard func(Reply) (more bool)) error {
	if len(question) > MaxQuestion {
		return Errorf(ErrConfig, "ask: a question has at most %d bytes, this one has %d", MaxQuestion, len(question))
	}
	a := &e.asking
	number, q, err := a.begin(e.size)
	if err != nil {
		return err
	}
	defer a.end(number)
	if err := e.up.send(&askMsg{rank: uint32(e.rank), number: number, question: question}); err != nil {
		return err
	}
	for {
		list, more, err := a.take(q)
		for _, r := range list {
			if !heard(r) {
				return nil
			}
		}
		if err != nil || !more {
			return err
		}
		select {
		case <-q.came:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// take takes the replies that have come; more of them may.
func (a *asking) take(q *inquiry) (list []Reply, more bool, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	list, q.replies = q.replies, nil
	if a.closed {
		err = ErrClosed
	}
	return list, q.left > 0, err
}

func (a *asking) begin(size int) (number uint32, q *inquiry, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.closed:
		return 0, nil, ErrClosed
	case len(a.untaken) >= mostAsked:
		return 0, nil, Errorf(ErrPeerLost, "rank 0, through which others are asked, %s", WhyUnheard)
	}
	if a.waiting == nil {
		a.waiting, a.untaken = map[uint32]*inquiry{}, map[uint32]struct{}{}
	}
	a.next++
	q = &inquiry{replied: make([]bool, size), left: size, came: make(chan struct{}, 1)}
	a.waiting[a.next], a.untaken[a.next] = q, struct{}{}
	return a.next, q, nil
}

func (a *asking) end(number uint32) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.waiting, number)
}

// asked answers a question in the background. One too many is not replied to: rank 0 does not send
// it.
func (e *Endpoint) asked(m *askMsg) {
	a := &e.asking
	a.mu.Lock()
	defer a.mu.Unlock()
	if int(m.rank) == e.rank {
		delete(a.untaken, m.number)
	}
	if a.closed || a.serving >= mostAsked {
		return
	}
	a.serving++
	a.replying.Go(func() { e.serve(m) })
}

// serve replies to a question, and rests.
func (e *Endpoint) serve(m *askMsg) {
	a := &e.asking
	a.making <- struct{}{}
	defer func() { <-a.making }()
	began := time.Now()
	r := &replyMsg{rank: m.rank, number: m.number}
	r.body, r.why = e.answered(m.question)
	took := time.Since(began)
	a.mu.Lock()
	a.serving--
	a.mu.Unlock()
	_ = e.up.send(r) // who has lost rank 0 is not heard any more
	rest(min(took, longestRest), a.over)
}

// rest returns after d, or when it is over.
func rest(d time.Duration, over <-chan struct{}) {
	if d <= 0 { // in a bubble of testing/synctest no time passes
		return
	}
	select {
	case <-time.After(d):
	case <-over:
	}
}

func (e *Endpoint) answered(question string) (body []byte, why string) {
	a := &e.asking
	a.mu.Lock()
	answer := a.answer
	a.mu.Unlock()
	if answer == nil {
		return nil, WhyDeaf
	}
	if body = answer(question); len(body) > MaxReply {
		return nil, "has more to say than fits into a reply"
	}
	return body, ""
}

// replied hands a reply to who waits for it. It does not block.
func (a *asking) replied(m *replyMsg) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.untaken, m.number)
	q := a.waiting[m.number]
	if q == nil || int64(m.rank) >= int64(len(q.replied)) || q.replied[m.rank] {
		return // nobody waits any more, or it has replied before
	}
	q.replied[m.rank] = true
	q.left--
	q.replies = append(q.replies, Reply{int(m.rank), m.body, m.why})
	q.kick()
}

func (q *inquiry) kick() {
	select {
	case q.came <- struct{}{}:
	default:
	}
}

// close has nothing asked or answered any more, and ends what waits.
func (a *asking) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.closed = true
	close(a.over)
	for _, q := range a.waiting {
		q.kick()
	}
}

// cost is about the bytes that it takes in a queue.
func (m *replyMsg) cost() int { return len(m.body) + len(m.why) + 128 }

// owed is a reply that a rank owes another one.
type owed struct{ rank, number uint32 }

// owesTo counts the replies that it owes a rank.
func (s *seat) owesTo(rank int) (n int) {
	for _, o := range s.owes {
		if o.rank == uint32(rank) {
			n++
		}
	}
	return n
}

// askLocked passes a question on, and replies for ranks that do not get it.
func (h *hub) askLocked(rank int, m *askMsg) {
	m = &askMsg{uint32(rank), m.number, m.question}
	asker, q := h.seats[rank].member, owed{m.rank, m.number}
	for r := range h.seats {
		s, why := &h.seats[r], ""
		switch {
		case s.lost != "":
			why = s.lost
		case s.gone:
			why = WhyLeft
		case len(s.owes) >= mostAsked || s.owesTo(rank) >= mostOfOne:
			why = WhyUnheard
		default:
			s.owes = append(s.owes, q)
			s.member.deliver(m)
			continue
		}
		asker.deliver(&replyMsg{rank: uint32(r), number: m.number, why: cut(why, maxReason)})
	}
}

// replyLocked passes a reply on to who has asked. One to what it was not asked is a broken
// protocol.
func (h *hub) replyLocked(rank int, m *replyMsg) bool {
	s := &h.seats[rank]
	i := slices.Index(s.owes, owed{m.rank, m.number})
	if i < 0 {
		return false
	}
	s.owes = slices.Delete(s.owes, i, i+1)
	if asker := &h.seats[m.rank]; !asker.gone {
		asker.member.deliver(&replyMsg{uint32(rank), m.number, m.why, m.body})
	}
	return true
}
