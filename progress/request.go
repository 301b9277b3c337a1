package progress

import (
	"context"

	"github.com/tagmatch/tagmatch/progress/internal/wait"
)

// Request is a handle on a nonblocking operation, a small value to copy and store. A use after
// completion was reported is ErrInactive. The zero Request is inactive: Wait and Test return at
// once, without an error.
type Request struct {
	note note
	op   *Op
	life uint64 // the generation, and the caller's mark above it
}

// MarkBits is how many bits Request.Mark keeps.
const MarkBits = 64 - wait.GenBits

// Mark returns r with a number of at most MarkBits bits, which is the caller's: a place for what
// its errors say, without another word in what programs copy and store. It takes the place of a
// former one.
func (r Request) Mark(m uint32) Request {
	r.life = r.gen() | uint64(m)<<wait.GenBits
	return r
}

// Marked returns the number that Mark was given, or 0.
func (r Request) Marked() uint32 { return uint32(r.life >> wait.GenBits) }

// gen is the generation of the operation that r names.
func (r Request) gen() uint64 { return r.life & (1<<wait.GenBits - 1) }

// nullSource is Status.Source of the zero Request, and of one of Null.
const nullSource = -2

// request is the handle on op in its present generation, which has not been consumed.
func (op *Op) request() Request { return Request{op.note, op, op.Gen()} }

// Failed returns a request that was born failed.
func Failed(err error) Request {
	refusals.Add(1)
	op := &Op{state: opEnded, err: err}
	op.SetEnded()
	return Request{op: op}
}

// Null returns the request of a call without a peer, which has succeeded already.
func (e *Engine) Null() Request {
	e.mu.Lock()
	defer e.mu.Unlock()
	op := e.pools.sent.take()
	op.born(noteNull, AnySource, 0, nil)
	op.status = Status{Source: nullSource}
	return op.request()
}

// Zero reports whether r is the zero Request.
func (r Request) Zero() bool { return r.op == nil }

// Active reports whether the request still has an outcome to give.
func (r Request) Active() bool {
	return r.op != nil && r.op.Active(r.gen())
}

// Over reports whether the operation has ended, or the request is inactive: Test gives the same
// from then on.
func (r Request) Over() bool { return r.op == nil || !r.op.Pending(r.gen()) }

// BornFailed reports whether the request is of Failed.
func (r Request) BornFailed() bool { return r.op != nil && r.op.e == nil }

// Wait blocks until the operation has ended and consumes the handle. If ctx ends first it returns
// ctx's error and the operation goes on.
func (r Request) Wait(ctx context.Context) (Status, error) {
	op := r.op
	if op == nil {
		return Status{Source: nullSource}, nil
	}
	if st, err, ok := op.consume(r.gen()); ok {
		return st, err
	}
	if !r.Active() { // it may have ended since: only another generation means that it was consumed
		return Status{}, r.note.inactive()
	}
	return r.waitSlow(ctx)
}

func (r Request) waitSlow(ctx context.Context) (Status, error) {
	if err := r.await(ctx); err != nil {
		return Status{}, err
	}
	st, err, ok := r.op.consume(r.gen())
	if !ok {
		return Status{}, r.note.inactive()
	}
	return st, err
}

// Test makes progress and reports whether the operation has ended; if so it consumes the handle.
func (r Request) Test() (Status, bool, error) {
	if op := r.op; op != nil && op.e != nil && op.Pending(r.gen()) {
		op.e.tryPoll()
	}
	st, over, _, err := r.Take()
	return st, over, err
}

// Take is Test that makes no progress. taken reports whether the outcome is this request's: not
// where it is inactive.
func (r Request) Take() (st Status, over, taken bool, err error) {
	if r.op == nil {
		return Status{Source: nullSource}, true, false, nil
	}
	if st, err, ok := r.op.consume(r.gen()); ok {
		return st, true, true, err
	}
	return r.notTaken()
}

// notTaken is what Take says of a request whose outcome is not to be had, now or ever.
func (r Request) notTaken() (st Status, over, taken bool, err error) {
	if !r.Active() {
		return Status{}, true, false, r.note.inactive()
	}
	return Status{}, false, false, nil
}

// Await waits until Take has something to say, and consumes nothing. If ctx ends first it returns
// ctx's error.
func (r Request) Await(ctx context.Context) error {
	if r.Over() {
		return nil
	}
	return r.await(ctx)
}

func (r Request) await(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	e := r.op.e
	e.mu.Lock()
	defer e.mu.Unlock()
	r.note.awaited(1)
	defer r.note.awaited(-1)
	return e.waitLocked(ctx, &r.op.Event, r.op, r.gen())
}

// Peek is Test that does not consume the handle.
func (r Request) Peek() (st Status, done bool, err error) {
	op := r.op
	if op == nil {
		return Status{Source: nullSource}, true, nil
	}
	if e := op.e; e != nil {
		if op.Pending(r.gen()) {
			e.tryPoll()
		}
		// Whoever takes the outcome leaves the status where it is, until the Op is posted again,
		// and the error until it has the lock.
		e.mu.Lock()
		defer e.mu.Unlock()
	}
	switch {
	case op.Has(r.gen()):
		return op.status, true, op.err
	case op.Active(r.gen()):
		return Status{}, false, nil
	}
	return Status{}, true, r.note.inactive()
}

// Reported reports whether the outcome was reported, or dropped: by Wait or Test, by a Queue, or
// after Free.
func (r Request) Reported() bool { return r.op == nil || r.op.Gen() != r.gen() }

// Finish ends a request as blocking calls end: when ctx ends first the operation is cancelled, and
// Finish returns once the buffer is free. No other call may have the handle.
func (r Request) Finish(ctx context.Context) (Status, error) {
	if r.op == nil || r.op.e == nil {
		return r.Wait(ctx)
	}
	e := r.op.e
	e.mu.Lock()
	st, err := e.finishLocked(ctx, r.op)
	e.mu.Unlock()
	r.note.outcome(err)
	return st, err
}

// Cancel asks for the operation's end and returns at once. The outcome is the request's:
// ErrCanceled, or success if the message was faster. It may have been given to a Queue.
func (r Request) Cancel() {
	if r.op == nil || !r.op.UnderWay(r.gen()) {
		return
	}
	e := r.op.e
	e.mu.Lock()
	if r.op.UnderWay(r.gen()) {
		r.op.cancel()
	}
	e.mu.Unlock()
}

// Done gives a channel that closes when the operation has ended; Wait then returns at once.
func (r Request) Done() <-chan struct{} {
	if r.op == nil || !r.op.Pending(r.gen()) {
		return wait.Closed
	}
	e := r.op.e
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.wait.Done(&r.op.Event, r.gen())
}
