package rendezvous

import (
	"context"
	"sync"
)

// A rank asks all ranks something, itself included: ASK goes to rank 0, which passes it on, and
// each REPLY comes back through rank 0. Nothing else depends on it, and it waits for nobody: rank 0
// replies for those that are gone, and who does not reply in time is left out.
//
// A process that is stopped reads nothing, and what fills its connection would end that. So a rank
// has at most mostAsked questions that it has not replied to, and so has rank 0: each ASK comes
// back to who asked, which says that rank 0 has taken it.

// MaxQuestion and MaxReply bound what is asked and answered, in bytes.
const (
	MaxQuestion = 256
	MaxReply    = 64 << 10
)

const (
	mostAsked   = 8
	mostReplies = 8 << 20 // bytes of replies that wait for one asker at rank 0; what comes then is dropped
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

// asking is what an Endpoint asks, and what it is asked. Its zero value is ready.
type asking struct {
	mu       sync.Mutex // guards the fields below
	answer   func(question string) []byte
	next     uint32
	waiting  map[uint32]*inquiry // by number
	untaken  map[uint32]struct{} // numbers of questions that rank 0 has not taken yet
	serving  int                 // answers that are being made
	closed   bool
	making   sync.Mutex     // held while an answer is made
	replying sync.WaitGroup // serving, as goroutines
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
	a.replying.Go(func() {
		r := &replyMsg{rank: m.rank, number: m.number}
		r.body, r.why = e.answered(m.question)
		a.mu.Lock()
		a.serving--
		a.mu.Unlock()
		_ = e.up.send(r) // who has lost rank 0 is not heard any more
	})
}

func (e *Endpoint) answered(question string) (body []byte, why string) {
	a := &e.asking
	a.mu.Lock()
	answer := a.answer
	a.mu.Unlock()
	if answer == nil {
		return nil, WhyDeaf
	}
	a.making.Lock()
	defer a.making.Unlock()
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
		return // nobody waits any more, or a rank has replied to what it was asked by others
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
	for _, q := range a.waiting {
		q.kick()
	}
}

// cost is about the bytes that it takes in a queue.
func (m *replyMsg) cost() int { return len(m.body) + len(m.why) + 128 }

// askLocked passes a question on, and replies for ranks that do not get it.
func (h *hub) askLocked(rank int, m *askMsg) {
	m = &askMsg{uint32(rank), m.number, m.question}
	asker := h.seats[rank].member
	for r := range h.seats {
		s, why := &h.seats[r], ""
		switch {
		case s.lost != "":
			why = s.lost
		case s.gone:
			why = WhyLeft
		case s.asked >= mostAsked:
			why = WhyUnheard
		default:
			s.asked++
			s.member.deliver(m)
			continue
		}
		asker.deliver(&replyMsg{rank: uint32(r), number: m.number, why: cut(why, maxReason)})
	}
}

// replyLocked passes a reply on to who has asked. One to nothing is a broken protocol.
func (h *hub) replyLocked(rank int, m *replyMsg) bool {
	s := &h.seats[rank]
	if s.asked == 0 || int64(m.rank) >= int64(h.size) {
		return false
	}
	s.asked--
	if asker := &h.seats[m.rank]; !asker.gone {
		asker.member.deliver(&replyMsg{uint32(rank), m.number, m.why, m.body})
	}
	return true
}
