package p2p

import "context"

// ctxLock is a lock for which a goroutine can wait until a context ends.
type ctxLock chan struct{} // has a token while nobody holds it

func newCtxLock() ctxLock {
	l := make(ctxLock, 1)
	l.unlock()
	return l
}

// lock returns the error of ctx if that ends before the lock is free.
func (l ctxLock) lock(ctx context.Context) error {
	if l.tryLock() {
		return nil
	}
	select {
	case <-l:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (l ctxLock) tryLock() bool {
	select {
	case <-l:
		return true
	default:
		return false
	}
}

func (l ctxLock) unlock() { l <- struct{}{} }
