package p2p

import (
	"context"

	"github.com/tagmatch/tagmatch/progress"
)

// Request is a handle, a small value that may be copied and stored. Its object is pooled; a
// generation number makes any use after completion ErrInactive, and never another operation. Only
// the zero Request is born inactive: Wait and Test return at once with no error. A request must be
// completed by Wait, Test or a function on slices (WaitAll...), given to a Queue, or given up by
// Free.
//
// It has four words, as the compiler keeps no larger value in registers.
type Request struct {
	r     progress.Request // object and generation, marked by rank and kind: see ofSend, ofRecv
	group *group           // of its Comm, for the status and errors
	tag   Tag              // with rank and kind for the text of an error
}

// ofSend and ofRecv are the request of a send to rank, or of a receive from it.
func ofSend(r progress.Request, g *group, rank int, tag Tag) Request {
	return Request{r.Mark(mark(rank, 1)), g, tag}
}

func ofRecv(r progress.Request, g *group, rank int, tag Tag) Request {
	return Request{r.Mark(mark(rank, 0)), g, tag}
}

// mark is a rank, AnySource or ProcNull, and above it whether the request is of a send. What is no
// rank is ProcNull there: the error that refuses it has it as it was.
func mark(rank int, send uint32) uint32 {
	if uint(rank-ProcNull) >= 1<<sendShift {
		rank = ProcNull
	}
	return send<<sendShift | uint32(rank-ProcNull)
}

const sendShift = progress.MarkBits - 1

// rank and kind are what mark was given.
func (r Request) rank() int { return int(r.r.Marked()&(1<<sendShift-1)) + ProcNull }

func (r Request) kind() string {
	if r.r.Marked()>>sendShift != 0 {
		return opSend
	}
	return opRecv
}

// Wait blocks until the operation has ended and consumes the handle. If ctx ends first it returns
// ctx's error and the operation GOES ON, still owning its buffer: call Wait again, or Cancel and
// then Wait.
func (r Request) Wait(ctx context.Context) (Status, error) {
	switch {
	case r.r.Zero() && ctx == nil:
		return nothing, errNoContext // the zero Request has no operation to name
	case r.r.Zero():
		return nothing, nil
	case ctx == nil:
		return nothing, r.fault(errNoContext)
	}
	est, err := r.r.Wait(ctx)
	if err != nil && stopped(ctx, err) && r.r.Active() {
		return nothing, err
	}
	return r.outcome(est, err)
}

// Test makes progress and reports whether the operation has ended; if so it consumes the handle.
func (r Request) Test() (st Status, done bool, err error) {
	if r.r.Zero() {
		return nothing, true, nil
	}
	est, done, err := r.r.Test()
	if !done {
		return nothing, false, nil
	}
	st, err = r.outcome(est, err)
	return st, true, err
}

// Peek is Test that does not consume the handle: it tells the outcome as often as it is asked. The
// buffer is the library's until Wait, Test or a Queue reports it too.
func (r Request) Peek() (st Status, done bool, err error) {
	if r.r.Zero() {
		return nothing, true, nil
	}
	est, done, err := r.r.Peek()
	if !done {
		return nothing, false, nil
	}
	st, err = r.outcome(est, err)
	return st, true, err
}

// Free lets the operation finish by itself, and drops its outcome; the handle is inactive from then
// on. Nothing will tell when the library is done with the buffer, so the program must never touch
// it again. A receive holds it until a message comes, or the World ends.
func (r Request) Free() { r.r.Free() }

// Cancel asks for the end of the operation and returns at once; a request that was given to a Queue
// may be cancelled too. The request completes with ErrCanceled, or as it would have, if it was too
// late. That takes as long as the other side needs to say which: the receiver of a large message
// that was announced to it, or a sender whose message is being received. However long that side is
// stopped or does not call the library, the request holds its buffer meanwhile. (A blocking call
// whose context ends waits 100 ms for that, see World.Send.)
func (r Request) Cancel() {
	if !r.r.Zero() {
		r.r.Cancel()
	}
}

// Done returns a channel that is closed when the operation has ended; Wait then returns at once. It
// is the only method of Request that allocates. For a request that was given to Notify or Free a
// channel that was asked for before closes at the end, one that is asked for later is closed.
func (r Request) Done() <-chan struct{} {
	if r.r.Zero() {
		return closedChan
	}
	return r.r.Done()
}

var closedChan = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// outcome converts the engine's outcome of this request.
func (r Request) outcome(est progress.Status, err error) (Status, error) {
	switch {
	case err != nil:
		return failedStatus(est, r.group, err), r.fault(err)
	case est.Source == ProcNull:
		return nothing, nil
	}
	return status(est, r.group), nil
}

// fault wraps an error of this request.
func (r Request) fault(err error) error { return opError(r.kind(), r.rank(), r.tag, r.group, err) }

// failedRequest is a request that has already ended with err.
func failedRequest(op string, rank int, tag Tag, err error) Request {
	if op == opSend {
		return ofSend(progress.Failed(err), nil, rank, tag)
	}
	return ofRecv(progress.Failed(err), nil, rank, tag)
}
