package progress

import (
	"context"
	"fmt"

	"github.com/tagmatch/tagmatch/internal/trace"
	"github.com/tagmatch/tagmatch/progress/internal/wait"
)

// callLocked is finishLocked for an operation of which no Request was made.
func (e *Engine) callLocked(ctx context.Context, op *Op) (Status, error) {
	if op.Ended() {
		return op.consumeLocked()
	}
	unmarked, err := e.wait.AwaitOwn(ctx, &op.Event, op)
	if unmarked {
		st, err := op.status, op.err
		op.free()
		return st, err
	}
	return e.finishedLocked(op, err)
}

// finishLocked waits for the operation of a blocking call and returns its outcome. The lock is
// released while it waits. When ctx ends the operation is cancelled; the call returns when the
// buffer is free.
func (e *Engine) finishLocked(ctx context.Context, op *Op) (Status, error) {
	var err error
	if gen := op.Gen(); op.Pending(gen) {
		if t := e.trace; t != nil {
			t.call(trace.Call, op)
		}
		err = e.wait.Await(ctx, &op.Event, op, gen)
	}
	return e.finishedLocked(op, err)
}

// finishedLocked returns the outcome of the operation of a blocking call that was waited for; err
// says why it has not ended.
func (e *Engine) finishedLocked(op *Op, err error) (Status, error) {
	if err == nil {
		return op.consumeLocked()
	}
	op.cancel()
	op.reclaim(op.Gen())
	st, opErr := op.consumeLocked()
	switch opErr {
	case ErrCanceled:
		opErr = err
	case errRevoked:
		opErr = fmt.Errorf("%w (%w)", err, ErrMaybeDelivered)
	}
	return st, opErr
}

// consumeLocked takes the outcome of an ended Op that no Request names, and frees it.
func (op *Op) consumeLocked() (Status, error) {
	op.e.mu.AssertHeld("the pool of operations")
	st, err := op.status, op.err
	op.Retire()
	op.free()
	return st, err
}

// waitLocked waits in a call that has not made what it waits for.
func (e *Engine) waitLocked(ctx context.Context, ev *wait.Event, op wait.Operation, gen uint64) error {
	if t := e.trace; t != nil && ev.Pending(gen) {
		t.call(trace.Wait, op)
	}
	err := e.wait.Await(ctx, ev, op, gen)
	if t := e.trace; t != nil {
		t.returned(op, err)
	}
	return err
}

// waitIn waits in a list of calls until what they wait for has come; unless, which may be nil,
// reports under the lock that it is there.
func (e *Engine) waitIn(ctx context.Context, state opState, list *[]*Op, unless func() bool) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.broken != nil || unless != nil && unless() {
		return e.broken
	}
	op := e.newOpLocked(noteFlush, AnySource, 0, 0, nil)
	op.move(state)
	*list = append(*list, op)
	e.wait.Retry()
	_, err := e.finishedLocked(op, e.waitLocked(ctx, &op.Event, op, op.Gen()))
	return err
}
