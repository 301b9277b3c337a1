package progress

import "sync/atomic"

// Taker takes the outcomes of many requests, with one hold of the lock for many of one engine: so
// their operations go back to the pool at the price of a store. The zero value is ready. Its
// methods are of one goroutine, which calls nothing else of the engine before Done.
type Taker struct {
	e *Engine // whose lock is held, nil: none
	n int     // how many were taken meanwhile
}

// takeBatch is how many outcomes are taken before others may have the lock.
const takeBatch = 64

// Take is Request.Take.
func (t *Taker) Take(r Request) (st Status, over, taken bool, err error) {
	op := r.op
	if op == nil || op.e == nil {
		return r.Take()
	}
	if t.hold(op.e); !op.Take(r.gen()) {
		return r.notTaken()
	}
	st, err = op.status, op.err
	n := op.note
	op.free()
	n.outcome(err)
	return st, true, true, err
}

// Drop consumes r and drops its status, if it has ended without an error and the lock is held
// already. Else it does nothing and returns false: Take knows more.
func (t *Taker) Drop(r Request) bool {
	op := r.op
	// While the lock is held nobody uses op again, so that its error is the one of this generation:
	// if that is another one, nothing is taken.
	if op == nil || op.e != t.e || t.n == takeBatch || op.err != nil || !op.Take(r.gen()) {
		return false
	}
	t.n++
	n := op.note
	op.free()
	n.outcome(nil)
	return true
}

// refusals is how many requests of refused calls this process has that were not reported: without
// any nobody looks for one. One that the program drops counts for ever, which costs time only.
var refusals atomic.Int64

// Refusals reports whether Refused may return an error for any request.
func Refusals() bool { return refusals.Load() != 0 }

// refusal is the error of a call that an engine has refused.
type refusal struct{ error }

func (r refusal) Unwrap() error { return r.error }

// forget drops the error of an Op whose outcome was reported, with the lock.
func (op *Op) forget() {
	if _, ok := op.err.(refusal); ok {
		refusals.Add(-1)
	}
	op.err = nil
}

// Refused returns the error of r, which has not been taken, if its call was refused: it has begun
// nothing, so that no peer hears of it. It consumes nothing.
func (t *Taker) Refused(r Request) error {
	op := r.op
	switch {
	case op == nil || !op.Has(r.gen()):
		return nil
	case op.e == nil:
		return op.err
	}
	t.hold(op.e)
	// While the lock is held nobody uses op again: its error is that of this generation.
	if err, ok := op.err.(refusal); ok && op.Has(r.gen()) {
		return err
	}
	return nil
}

// hold takes the lock of an engine for one operation more.
func (t *Taker) hold(e *Engine) {
	if e != t.e || t.n == takeBatch {
		t.Done()
		t.e = e
		e.mu.Lock()
	}
	t.n++
}

// Done ends the use of the lock.
func (t *Taker) Done() {
	if t.e != nil {
		t.e.mu.Unlock()
	}
	t.e, t.n = nil, 0
}
