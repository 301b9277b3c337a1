package progress

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/tagmatch/tagmatch/progress/internal/hook"
)

// cancel ends an operation at once where that is possible. A rendezvous request is withdrawn first,
// and an offloaded receive removed from the device. One that is matched completes normally; it ends
// as cancelled where its message is withdrawn.
func (op *Op) cancel() {
	e := op.e
	e.mu.AssertHeld("an operation")
	op.canceled = true
	switch op.state {
	case opPosted:
		op.endPosted(ErrCanceled)
	case opOffloaded:
		op.del(ErrCanceled)
	case opQueued:
		op.cancelQueued()
	case opRequested:
		op.withdraw()
	case opFlushing, opRoom:
		is := func(o *Op) bool { return o == op }
		e.flushers, e.backlog.rooms = slices.DeleteFunc(e.flushers, is), slices.DeleteFunc(e.backlog.rooms, is)
		op.complete(Status{}, ErrCanceled)
	}
}

// withdraw sends WITHDRAW: the receiver is to remove the rendezvous request.
func (op *Op) withdraw() {
	op.move(opWithdrawing)
	op.e.peers[op.peer].sendCtrl(ctrl{kind: ctrlWithdraw, id: op.slot.wire()})
}

// revokeGrace is how long a blocking send whose context has ended waits for its receiver's answer
// before it deregisters the buffer, and again after that. A rank that makes progress answers in
// much less; then exactly one of both sides has the message.
const revokeGrace = 50 * time.Millisecond

// graceByClock bounds the wait for a receiver that is to answer for a send, see reclaim.
func graceByClock() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), revokeGrace)
}

// What package progresstest reaches.
func init() {
	hook.With = func(cfg any, seed uint64, grace func() (context.Context, context.CancelFunc)) any {
		c := cfg.(Config)
		c.seed, c.grace = seed, grace
		return c
	}
	hook.Credit = func(receiver, sender any, to, from int) (used, charged, consumed uint64) {
		s, r := sender.(*Engine), receiver.(*Engine)
		s.mu.Lock()
		if p := s.peers[to]; p != nil {
			used = p.out.Charged()
		}
		s.mu.Unlock()
		r.mu.Lock()
		if p := r.peers[from]; p != nil {
			charged, consumed, _ = p.in.Usage()
		}
		r.mu.Unlock()
		return used, charged, consumed
	}
}

// copyTime is how long a receive whose context has ended polls for the end of the sender's copy
// before it waits: more than a chunk takes that is not interrupted.
const copyTime = time.Millisecond

// reclaim waits for the end of a blocking call's operation that was cancelled. A rendezvous
// request that its receiver does not answer in time, because it is stopped, does not call the
// library or has a device that reads, is revoked: the buffer is deregistered, so that the read
// fails. A receiver that makes progress answers then. A receive whose message is being read
// requeues it unless another waits for it; a sender that is stopped in the middle of a copy is
// waited for.
func (op *Op) reclaim(gen uint64) {
	e := op.e
	if op.state == opWithdrawing && e.caps.Revoke {
		if op.awaitGrace(gen) {
			return
		}
		op.deregister()
		if !op.awaitGrace(gen) {
			op.endRequest(Status{}, errRevoked)
		}
		return
	}
	if e.caps.Revoke && op.awaitAbandon(gen) {
		return
	}
	_ = e.wait.Await(context.Background(), &op.Event, op, gen)
}

// awaitAbandon abandons op if it is reading, as soon as the sender's processor is not in the middle
// of a copy to its buffer. It reports whether op has ended.
func (op *Op) awaitAbandon(gen uint64) bool {
	for start := time.Now(); op.state == opReading; {
		switch ended, busy := op.abandon(); {
		case ended:
			return true
		case !busy:
			return false
		case time.Since(start) < copyTime:
			op.e.pollLocked()
		case op.awaitGrace(gen):
			return true
		}
	}
	return false
}

// awaitGrace waits for the end of op while its receiver may take its time, and reports whether it
// has ended.
func (op *Op) awaitGrace(gen uint64) bool {
	ctx, cancel := op.e.cfg.grace()
	defer cancel()
	return op.e.wait.Await(ctx, &op.Event, op, gen) == nil
}

// takeWithdraw handles p's WITHDRAW. A receive that is reading the message goes back to its place.
// What is not here any more has had its FIN, and what a device reads ends with one, or because the
// memory is gone: these are the answer. One that the device may have matched, without having said
// so yet, is remembered until it does. A Message that has it is of no more use.
func (p *peer) takeWithdraw(id uint32) {
	e := p.e
	if cost, ok := e.unexp.Withdraw(p.rank, id); ok {
		p.consumed(cost)
	} else if m := e.held[request{p.rank, id}]; m != nil {
		m.fail(errWithdrawn)
	} else if op := p.receiver(id); op == nil {
		p.remember(id)
		return
	} else if !op.loseMessage() {
		return
	}
	p.sendCtrl(ctrl{kind: ctrlWithdrawn, id: id})
}

// maxWithdraws bounds peer.withdraws against one that withdraws what it has not sent.
const maxWithdraws = 1 << 10

// remember has identified find a request that p has withdrawn, if the device may have matched it.
func (p *peer) remember(id uint32) {
	if len(p.withdraws) < maxWithdraws && !slices.Contains(p.withdraws, id) && p.mayBeMatched() {
		p.withdraws = append(p.withdraws, id)
	}
}

// mayBeMatched reports whether the device has matched a message of p that may be a rendezvous
// request: which one, Incomplete tells.
func (p *peer) mayBeMatched() bool {
	for op := range p.e.off.slots.ops() {
		if op.state == opMatched && op.read.src == p.rank && op.read.appCtx&rndvName == 0 {
			return true
		}
	}
	return false
}

// identified follows that the device has left a request to software, and so told which one it has
// matched: p may have sent WITHDRAW for it.
func (p *peer) identified(r *readState) {
	if i := slices.Index(p.withdraws, r.appCtx); i >= 0 {
		p.withdraws = slices.Delete(p.withdraws, i, i+1)
		r.withdraw = true
	}
	p.forgetWithdraws()
}

// forgetWithdraws forgets the requests that p has withdrawn once no matched message can be one of
// them: their FINs were sent.
func (p *peer) forgetWithdraws() {
	if len(p.withdraws) != 0 && !p.mayBeMatched() {
		p.withdraws = nil
	}
}

// receiver finds the receive that has matched a request of p. The device has not many.
func (p *peer) receiver(id uint32) *Op {
	e, r := p.e, request{p.rank, id}
	if op := e.reads.of(r); op != nil {
		return op
	}
	for op := range e.off.slots.ops() {
		if op.state == opMatched && op.read.request() == r {
			return op
		}
	}
	return nil
}

// takeWithdrawn handles WITHDRAWN: the peer has removed the request, and the send ends. Without a
// WITHDRAW of this rank it is ignored, as the peer may still read the buffer.
func (p *peer) takeWithdrawn(id uint32) {
	if op := p.requested(id); op != nil && op.state == opWithdrawing {
		op.endRequest(Status{}, cmp.Or(p.e.contexts.barredBy(op.tag), ErrCanceled))
	}
}
