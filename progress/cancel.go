package progress

import (
	"context"
	"time"
)

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

// revokeGrace is how long the context of a blocking send waits for the answer to a withdrawal before the buffer is taken back.
// A rank that makes progress answers in much less, and then exactly one of both sides has the message.
const revokeGrace = 10 * time.Millisecond

// reclaimLocked waits for the end of a blocking call's operation that was cancelled. A rendezvous request that its receiver
// does not answer, because it is stopped or does not call the library, is revoked: reads of the buffer fail from then on.
func (e *Engine) reclaimLocked(op *Op, life uint64) {
	if op.state == opWithdrawing && e.caps.Revoke {
		ctx, cancel := context.WithTimeout(context.Background(), revokeGrace)
		defer cancel()
		if e.awaitLocked(ctx, op, life) != nil {
			e.m.Canceled++
			e.m.Revoked++
			e.endRequestLocked(op, Status{}, ErrCanceled)
		}
		return
	}
	_ = e.awaitLocked(context.Background(), op, life)
}

// withdrawnFromLocked ends a receive whose message was taken back while it was received. It is unlinked already, and later
// receives may have got later messages: it cannot go back to its place, but its end keeps it.
func (e *Engine) withdrawnFromLocked(op *Op) {
	e.m.Withdrawn++
	e.completeLocked(op, Status{}, ErrWithdrawn)
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
