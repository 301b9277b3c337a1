package progress

import (
	"context"
	"fmt"

	"github.com/tagmatch/tagmatch/progress/internal/wait"
)

// call is a goroutine that waits for the first of many things: of the outcomes in a Queue, or of
// the ends of some requests. Calls are pooled. All fields are guarded by the engine's lock.
type call struct {
	wait.Event
	links[call]         // in Queue.calls, or in the pool
	q           *Queue  // that it waits at; nil once woken, and for requests
	e           *Engine // constant
	watches     []opWatch
}

type callList = list[call, *call]

// opWatch is a call's watch of one operation.
type opWatch struct {
	note note
	wait.Watch
	op *Op
}

// lookedAt is how many operations of a call are asked for what is in flight.
const lookedAt = 16

// InFlight is how many bytes are on their way for one of the operations.
func (c *call) InFlight() (n uint64) {
	for i := range min(len(c.watches), lookedAt) {
		n = max(n, c.watches[i].op.InFlight())
	}
	if c.q != nil {
		en := c.q.pending.head
		for i := 0; i < lookedAt && en != nil; i, en = i+1, en.next {
			n = max(n, en.op.InFlight())
		}
	}
	return n
}

// Over ends the wait of a call when one of its operations has ended, or was given away.
func (c *call) Over() {
	if !c.Ended() {
		c.e.wait.End(&c.Event)
	}
}

// Waits is true: a call is a goroutine.
func (c *call) Waits() bool { return true }

// call gives a call out of the pool, or a new one.
func (s *queues) call() *call {
	s.e.mu.AssertHeld("the calls that wait")
	c := s.calls
	if c == nil {
		return &call{e: s.e}
	}
	s.calls, c.next = c.next, nil
	return c
}

// dropCall gives a call back.
func (s *queues) dropCall(c *call) { c.next, s.calls = s.calls, c }

// OneEngine returns the engine of n requests, or nil where all are inactive or were born failed.
// Requests of two engines are ErrInvalid.
func OneEngine(n int, at func(int) Request) (e *Engine, err error) {
	for i := range n {
		r := at(i)
		if !r.Active() || r.op.e == nil || r.op.e == e {
			continue
		}
		if e != nil {
			return nil, fmt.Errorf("%w: request %d is of another World than one before it", ErrInvalid, i)
		}
		e = r.op.e
	}
	return e, nil
}

// AwaitAny waits until one of n requests, of this engine or of none, has ended or is inactive, or
// ctx has ended: then it returns ctx's error. It consumes nothing.
func (e *Engine) AwaitAny(ctx context.Context, n int, at func(int) Request) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	c := e.queues.call()
	c.link(n, at)
	err := e.waitLocked(ctx, &c.Event, c, c.Gen())
	for i := range c.watches {
		c.watches[i].Unlink()
		c.watches[i].note.awaited(-1)
	}
	clear(c.watches)
	c.watches = c.watches[:0]
	if c.Ended() {
		c.Retire()
	}
	e.queues.dropCall(c)
	return err
}

// link has the ends of n requests end the call. One that is over does at once.
func (c *call) link(n int, at func(int) Request) {
	if cap(c.watches) < n {
		c.watches = make([]opWatch, 0, n)
	}
	for i := range n {
		r := at(i)
		if r.op == nil {
			continue
		}
		if r.op.e != c.e || !r.op.Pending(r.gen()) {
			c.Over()
			return
		}
		r.note.awaited(1)
		c.watches = append(c.watches, opWatch{note: r.note, op: r.op})
		c.watches[len(c.watches)-1].Link(&r.op.Event, c)
	}
}

// Progress makes progress once in each engine of those of n requests that are under way, unless
// somebody else is making it.
func Progress(n int, at func(int) Request) {
	var last *Engine
	for i := range n {
		r := at(i)
		if r.op == nil || r.op.e == nil || r.op.e == last || !r.op.Pending(r.gen()) {
			continue
		}
		last = r.op.e
		last.tryPoll()
	}
}

// tryPoll makes progress once, unless somebody else is making it.
func (e *Engine) tryPoll() {
	if !e.mu.TryLock() {
		e.wait.Outrun()
		return
	}
	events := e.pollLocked()
	e.leaveLocked()
	if events == 0 {
		e.wait.Vain()
	}
	e.mu.Unlock()
}
