package p2p

import (
	"context"
	"errors"

	"github.com/tagmatch/tagmatch/progress"
)

// Request is a handle, a small value that may be copied and stored. Its object is pooled; a
// generation number makes any use after completion ErrInactive, and never another operation. The
// zero Request is inactive: Wait and Test return at once with no error. A request must be completed
// by Wait, Test or WaitAll.
type Request struct {
	r     progress.Request // object and generation
	group *group           // of its Comm, for the status
	tag   Tag              // this and the rest: for the text of an error
	room  int              // bytes of the buffer
	rank  int32
	send  bool
}

// Wait blocks until the operation has ended and consumes the handle. If ctx ends first it returns
// ctx's error and the operation GOES ON, still owning its buffer: call Wait again, or Cancel and
// then Wait.
func (r Request) Wait(ctx context.Context) (Status, error) {
	st, _, err := r.wait(ctx)
	return st, err
}

// wait is Wait; consumed reports whether the handle was consumed.
func (r Request) wait(ctx context.Context) (st Status, consumed bool, err error) {
	switch {
	case r == (Request{}) && ctx == nil:
		return nothing, false, errNoContext // the zero Request has no operation to name
	case r == (Request{}):
		return nothing, true, nil
	case ctx == nil:
		return nothing, false, r.fault(errNoContext)
	}
	est, err := r.r.Wait(ctx)
	if err == nil {
		return status(est, r.group), true, nil
	}
	if stopped(ctx, err) && r.r.Active() {
		return nothing, false, err
	}
	return failedStatus(est, r.group, err), true, r.failed(est, err)
}

// Test makes progress and reports whether the operation has ended; if so it consumes the handle.
func (r Request) Test() (st Status, done bool, err error) {
	if r == (Request{}) {
		return nothing, true, nil
	}
	est, done, err := r.r.Test()
	switch {
	case err != nil:
		return failedStatus(est, r.group, err), done, r.failed(est, err)
	case !done:
		return nothing, false, nil
	}
	return status(est, r.group), true, nil
}

// Cancel asks for the end of the operation and returns at once. The request completes with
// ErrCanceled, or with success if it was too late.
func (r Request) Cancel() {
	if r != (Request{}) {
		r.r.Cancel()
	}
}

// Done returns a channel that is closed when the operation has ended; Wait then returns at once. It
// is the only call that allocates.
func (r Request) Done() <-chan struct{} {
	if r == (Request{}) {
		return closedChan
	}
	return r.r.Done()
}

var closedChan = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// WaitAll waits for all of reqs. It skips inactive requests and sets those that it consumes to
// Request{}, so that loops end. If ctx ends first it returns ctx's error, and unfinished operations
// go on. Otherwise its error is that of the lowest failing index; out, unless nil, must be as long
// as reqs and gets the outcome of each.
func WaitAll(ctx context.Context, reqs []Request, out []Completion) error {
	if ctx == nil {
		return errNoContext
	}
	if out != nil && len(out) != len(reqs) {
		return invalidf("out has %d elements for %d requests: give nil or as many as requests", len(out), len(reqs))
	}
	var first error
	for i := range reqs {
		st, consumed, err := reqs[i].wait(ctx)
		if !consumed {
			return err
		}
		if errors.Is(err, ErrInactive) { // consumed by another call
			st, err = nothing, nil
		}
		if out != nil {
			out[i] = Completion{Data: uint64(i), Status: st, Err: err}
		}
		if err != nil && first == nil {
			first = err
		}
		reqs[i] = Request{}
	}
	return first
}

// failed wraps the error of an operation that has ended.
func (r Request) failed(st progress.Status, err error) error {
	if err == ErrTruncated {
		err = truncated(st.Len, r.room)
	}
	return r.fault(err)
}

// fault wraps an error of this request.
func (r Request) fault(err error) error {
	op := opRecv
	if r.send {
		op = opSend
	}
	return opError(op, int(r.rank), r.tag, err)
}

// failedRequest is a request that has already ended with err; nil stands for an operation with
// ProcNull, which is inactive.
func failedRequest(op string, rank int, tag Tag, err error) Request {
	if err == nil {
		return Request{}
	}
	return Request{r: progress.Failed(err), tag: tag, rank: int32(rank), send: op == opSend}
}
