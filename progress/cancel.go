package progress

// cancelLocked asks for the end of an operation. What can end at once does; a rendezvous request is asked back from the peer;
// what is matched completes normally. The outcome is reported once, by whoever decides it.
func (e *Engine) cancelLocked(op *Op) {
	switch op.state {
	case opPosted:
		if _, ok := e.posted.Remove(op.handle); ok {
			if e.tags != nil {
				e.leftLocked(op)
			}
			e.canceledLocked(op)
		}
	case opOffered:
		e.recallLocked(op, ErrCanceled)
	case opQueued:
		e.unqueueLocked(&e.peers[op.peer], op)
		e.m.Canceled++
		e.endSendLocked(op, Status{}, ErrCanceled)
	case opRequested:
		op.state = opWithdrawing
		e.ctrlLocked(&e.peers[op.peer], ctrl{kind: ctrlWithdraw, id: op.slot.wire()})
	case opFlushing:
		for i, f := range e.flushers {
			if f == op {
				e.flushers = append(e.flushers[:i], e.flushers[i+1:]...)
				break
			}
		}
		e.canceledLocked(op)
	}
}

func (e *Engine) canceledLocked(op *Op) {
	e.m.Canceled++
	e.completeLocked(op, Status{}, ErrCanceled)
}

// withdrawLocked answers a sender that wants a request back. A request that is not here any more was matched: its Fin is on
// the way, and is the answer.
func (e *Engine) withdrawLocked(p *peer, id uint32) {
	for m := p.rndvs; m != nil; m = m.next {
		if m.appCtx == id {
			e.unexp.Remove(m.handle)
			e.dropRndvLocked(m)
			e.ctrlLocked(p, ctrl{kind: ctrlWithdrawn, id: id})
			return
		}
	}
}

// withdrawnLocked ends a send that the peer gave back. An answer that nobody asked for is ignored: the buffer is still in
// the peer's hands as far as this rank knows.
func (e *Engine) withdrawnLocked(p *peer, id uint32) {
	op := e.requestOfLocked(p.rank, id)
	if op == nil || op.state != opWithdrawing {
		return
	}
	e.m.Canceled++
	e.endRequestLocked(op, Status{}, ErrCanceled)
}
