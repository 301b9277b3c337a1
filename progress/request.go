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
	gen  uint64
}

// inactiveSource is Status.Source of the zero Request.
const inactiveSource = -2

// Failed returns a request that was born failed.
func Failed(err error) Request {
	op := &Op{state: opEnded, err: err}
	op.SetEnded()
	return Request{op: op}
}

// Active reports whether the request still has an outcome to give.
func (r Request) Active() bool {
	return r.op != nil && r.op.Active(r.gen)
}

// Wait blocks until the operation has ended and consumes the handle. If ctx ends first it returns
// ctx's error and the operation goes on.
func (r Request) Wait(ctx context.Context) (Status, error) {
	op := r.op
	if op == nil {
		return Status{Source: inactiveSource}, nil
	}
	if st, err, ok := op.consume(r.gen); ok {
		return st, err
	}
	if !r.Active() { // it may have ended since: only another generation means that it was consumed
		return Status{}, r.note.inactive()
	}
	return r.waitSlow(ctx)
}

func (r Request) waitSlow(ctx context.Context) (Status, error) {
	if err := ctx.Err(); err != nil {
		return Status{}, err
	}
	e := r.op.e
	e.mu.Lock()
	r.note.awaited(1)
	err := e.wait.Await(ctx, &r.op.Event, r.op, r.gen)
	r.note.awaited(-1)
	e.mu.Unlock()
	if err != nil {
		return Status{}, err
	}
	st, err, ok := r.op.consume(r.gen)
	if !ok {
		return Status{}, r.note.inactive()
	}
	return st, err
}

// Test makes progress and reports whether the operation has ended; if so it consumes the handle.
func (r Request) Test() (Status, bool, error) {
	op := r.op
	if op == nil {
		return Status{Source: inactiveSource}, true, nil
	}
	if e := op.e; e != nil && op.Pending(r.gen) && e.mu.TryLock() {
		e.pollLocked()
		e.mu.Unlock()
	}
	if st, err, ok := op.consume(r.gen); ok {
		return st, true, err
	}
	if !r.Active() {
		return Status{}, true, r.note.inactive()
	}
	return Status{}, false, nil
}

// Cancel asks for the operation's end and returns at once. The outcome is the request's:
// ErrCanceled, or success if the message was faster.
func (r Request) Cancel() {
	if r.op == nil || !r.op.Pending(r.gen) {
		return
	}
	e := r.op.e
	e.mu.Lock()
	if r.op.Pending(r.gen) {
		r.op.cancel()
	}
	e.mu.Unlock()
}

// Done gives a channel that closes when the operation has ended; Wait then returns at once.
func (r Request) Done() <-chan struct{} {
	if r.op == nil || !r.op.Pending(r.gen) {
		return wait.Closed
	}
	e := r.op.e
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.wait.Done(&r.op.Event, r.gen)
}
