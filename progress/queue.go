package progress

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/tagmatch/tagmatch/progress/internal/wait"
)

// Label comes back with a completion as it was given to Notify. Ref is for a pointer, which needs
// no memory of its own there.
type Label struct {
	Words [3]uint64
	Ref   any
}

// Completion is the outcome of one request that a Queue was given.
type Completion struct {
	note   note
	Label  Label
	Status Status
	Err    error
}

// Queue collects the outcomes of many requests of one engine, in the order in which the operations
// ended. All methods may be called by any goroutine.
type Queue struct {
	e     *Engine      // constant
	count atomic.Int64 // of ready; written under the engine's lock

	// The rest is guarded by the engine's lock.
	pending entryList // operations under way
	ready   entryList // that have ended, and are reported next
	calls   callList  // that wait here; the latest is woken first: it is likely to be polling
	woken   bool      // a call was woken and has not looked yet; it wakes the next if there is more
	closed  bool

	links[Queue] // in queues.waiting, while calls wait
}

// entry is an operation whose outcome was given to a Queue, or to nobody.
type entry struct {
	watch        wait.Watch
	q            *Queue // nil: the outcome is dropped
	op           *Op    // nil: the outcome is status and err
	label        Label
	status       Status
	err          error
	links[entry] // in a list of the Queue, or in the pool
}

type entryList = list[entry, *entry]

// queues is what the Queues of an engine share. All fields are guarded by the engine's lock.
type queues struct {
	e       *Engine             // constant
	waiting list[Queue, *Queue] // where calls wait
	entries *entry              // the pool of entries, linked by next
	calls   *call               // the pool of calls, likewise
}

// maxDepth bounds what NewQueue allocates at once.
const maxDepth = 1 << 16

// NewQueue makes a Queue, which grows without a bound; depth is how many requests it is likely to
// have at a time.
func (e *Engine) NewQueue(depth int) *Queue {
	entries := make([]entry, min(max(depth, 0), maxDepth))
	e.mu.Lock()
	defer e.mu.Unlock()
	for i := range entries {
		e.queues.drop(&entries[i])
	}
	return &Queue{e: e}
}

// entry gives an entry out of the pool, or a new one.
func (s *queues) entry(q *Queue, label Label) *entry {
	s.e.mu.AssertHeld("the entries of queues")
	en := s.entries
	if en == nil {
		en = &entry{}
	} else {
		s.entries, en.next = en.next, nil
	}
	en.q, en.label = q, label
	return en
}

// drop gives an entry back.
func (s *queues) drop(en *entry) {
	*en = entry{}
	en.next, s.entries = s.entries, en
}

// wake has calls at all queues see that the engine has ended.
func (s *queues) wake() {
	for q := s.waiting.head; q != nil; {
		next := q.next
		q.wakeLocked()
		q = next
	}
}

// Notify hands the request to q, which reports its outcome with label, also where that is an error,
// or that the request was inactive. The handle is inactive from then on. A request of another
// engine is reported at once as ErrInvalid, and its operation goes on as after Free. If q is
// closed, or nil, Notify is Free.
func (r Request) Notify(q *Queue, label Label) {
	if q == nil {
		r.Free()
		return
	}
	e := q.e
	foreign := r.op != nil && r.op.e != nil && r.op.e != e
	if foreign {
		r.Free() // takes a lock of its own
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if q.closed {
		e.log.Warn("a request was given to a queue that is closed: nobody will be told its outcome", "rank", e.cfg.Rank)
		if !foreign {
			r.freeLocked()
		}
		return
	}
	en := e.queues.entry(q, label)
	switch {
	case r.op == nil:
		en.status.Source = nullSource
	case foreign:
		en.err = fmt.Errorf("%w: the request is of another World than the queue", ErrInvalid)
	case r.op.e == nil:
		en.status, _, _, en.err = r.Take()
	case !r.op.Give(r.gen()):
		en.err = r.note.inactive()
	default:
		r.note.given(q)
		en.op = r.op
		if !en.op.Ended() {
			en.watch.Link(&en.op.Event, en)
			q.pending.push(en)
			return
		}
	}
	q.pushLocked(en)
}

// Free lets the operation end by itself: its outcome is dropped, and the handle inactive.
func (r Request) Free() {
	if r.op != nil && r.op.e != nil {
		r.op.e.mu.Lock()
		defer r.op.e.mu.Unlock()
	}
	r.freeLocked()
}

// freeLocked is Free with the lock of the request's engine, if it has one.
func (r Request) freeLocked() {
	switch {
	case r.op == nil || r.op.e == nil:
		_, _, _, _ = r.Take()
	case !r.op.Give(r.gen()): // its outcome was taken or given away
	case r.op.Ended():
		r.note.given(nil)
		_, _ = r.op.consumeLocked()
	default:
		r.note.given(nil)
		en := r.op.e.queues.entry(nil, Label{})
		en.op = r.op
		en.watch.Link(&en.op.Event, en)
	}
}

// Over reports the outcome of an operation that was given away, or drops it: its Queue is closed.
func (en *entry) Over() {
	if q := en.q; q != nil {
		q.pending.remove(en)
		q.pushLocked(en)
		return
	}
	e := en.op.e
	_, _ = en.op.consumeLocked()
	e.queues.drop(en)
}

// Waits reports whether a call waits at the queue that reports the outcome.
func (en *entry) Waits() bool { return en.q != nil && en.q.calls.head != nil }

// pushLocked adds an outcome to those that are reported.
func (q *Queue) pushLocked(en *entry) {
	q.ready.push(en)
	q.count.Add(1)
	q.wakeLocked()
}

// takeLocked moves outcomes to dst, as many as there are and fit.
func (q *Queue) takeLocked(dst []Completion) (n int) {
	q.e.mu.AssertHeld("a queue")
	for ; n < len(dst) && q.ready.head != nil; n++ {
		en, c := q.ready.head, &dst[n]
		q.ready.remove(en)
		c.Label, c.Status, c.Err = en.label, en.status, en.err
		if en.op != nil {
			c.note = en.op.note
			c.Status, c.Err = en.op.consumeLocked()
		}
		q.e.queues.drop(en)
	}
	q.count.Add(int64(-n))
	return n
}

// Poll moves outcomes to dst and returns how many. Where there are none it makes progress, once. It
// never blocks.
func (q *Queue) Poll(dst []Completion) int {
	e := q.e
	if q.count.Load() != 0 {
		e.mu.Lock()
	} else if e.mu.TryLock() {
		e.pollLocked()
		e.leaveLocked()
	} else {
		e.wait.Outrun()
		return 0
	}
	n := q.takeLocked(dst)
	if n == 0 {
		e.wait.Vain()
	}
	e.mu.Unlock()
	reported(dst[:n])
	return n
}

// Wait waits for at least one outcome, moves to dst as many as there are and fit, and returns how
// many. If ctx ends first it returns ctx's error. A Queue that is closed gives ErrClosed, and one
// without a request, once the engine has ended, what that ended with.
func (q *Queue) Wait(ctx context.Context, dst []Completion) (int, error) {
	if len(dst) == 0 {
		return 0, fmt.Errorf("%w: there is no room for a completion", ErrInvalid)
	}
	e := q.e
	e.mu.Lock()
	n, err := q.waitLocked(ctx, dst)
	e.mu.Unlock()
	reported(dst[:n])
	return n, err
}

// reported follows the report of outcomes.
func reported(cs []Completion) {
	for i := range cs {
		var none note
		cs[i].note.outcome(cs[i].Err)
		cs[i].note = none
	}
}

func (q *Queue) waitLocked(ctx context.Context, dst []Completion) (n int, err error) {
	for {
		n = q.takeLocked(dst)
		if err = q.overLocked(); n == 0 && err == nil {
			if err := q.awaitLocked(ctx); err != nil {
				return 0, err
			}
			continue
		}
		if q.ready.head != nil || err != nil {
			q.wakeLocked() // the next has something to find, too
		}
		if n != 0 {
			return n, nil
		}
		return 0, err
	}
}

// overLocked is why nobody needs to wait for an outcome that is not there: none will come.
func (q *Queue) overLocked() error {
	switch {
	case q.closed:
		return ErrQueueClosed
	case q.pending.head == nil:
		return q.e.broken // what is given to it now has failed before
	}
	return nil
}

// awaitLocked waits until somebody wakes this call, which may be in vain, or ctx has ended.
func (q *Queue) awaitLocked(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	e := q.e
	c := e.queues.call()
	q.enter(c)
	err := e.waitLocked(ctx, &c.Event, c, c.Gen())
	if err != nil {
		q.leave(c)
	} else {
		q.woken = false
		c.Retire()
	}
	e.queues.dropCall(c)
	return err
}

// enter adds a call to those that wait.
func (q *Queue) enter(c *call) {
	if q.calls.head == nil {
		q.e.queues.waiting.push(q)
	}
	c.q = q
	q.calls.push(c)
}

// leave takes a call out.
func (q *Queue) leave(c *call) {
	c.q = nil
	q.calls.remove(c)
	if q.calls.head == nil {
		q.e.queues.waiting.remove(q)
	}
}

// wakeLocked has one of the calls that wait look.
func (q *Queue) wakeLocked() {
	if c := q.calls.tail; c != nil && !q.woken {
		q.woken = true
		q.leave(c)
		q.e.wait.End(&c.Event)
	}
}

// Cancel asks for the end of all operations under way whose requests q was given. It reports each.
func (q *Queue) Cancel() {
	e := q.e
	e.mu.Lock()
	defer e.mu.Unlock()
	var entries []*entry // to cancel one may end others
	for en := q.pending.head; en != nil; en = en.next {
		entries = append(entries, en)
	}
	for _, en := range entries {
		if !en.op.Ended() {
			en.op.cancel()
		}
	}
}

// Close ends the Queue. Outcomes that were not reported are dropped, and operations under way go on
// as after Free. Safe to call twice.
func (q *Queue) Close() error {
	e := q.e
	e.mu.Lock()
	defer e.mu.Unlock()
	q.closed = true
	for en := q.pending.head; en != nil; en = q.pending.head {
		q.pending.remove(en)
		en.q = nil
		en.op.note.given(nil)
	}
	for en := q.ready.head; en != nil; en = q.ready.head {
		q.ready.remove(en)
		if en.op != nil {
			en.op.note.given(nil)
			_, _ = en.op.consumeLocked()
		}
		e.queues.drop(en)
	}
	q.count.Store(0)
	q.wakeLocked()
	return nil
}
