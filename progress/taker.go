package progress

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
	if op.e != t.e || t.n == takeBatch {
		t.Done()
		t.e = op.e
		t.e.mu.Lock()
	}
	if t.n++; !op.Take(r.gen()) {
		return r.Take()
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

// Done ends the use of the lock.
func (t *Taker) Done() {
	if t.e != nil {
		t.e.mu.Unlock()
	}
	t.e, t.n = nil, 0
}
