package progress

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/tagmatch/tagmatch/progress/internal/hook"
)

// cancel ends an operation at once where that is possible. A rendezvous request is withdrawn first,
// and an offloaded receive removed from the device. One that is matched completes normally.
func (op *Op) cancel() {
	e := op.e
	e.mu.AssertHeld("an operation")
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
// before it deregisters the buffer. A rank that makes progress answers in much less; then exactly
// one of both sides has the message.
const revokeGrace = 50 * time.Millisecond

// graceByClock bounds the wait for a receiver that is to answer for a send, see reclaimLocked.
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
		used = s.peers[to].out.Charged()
		s.mu.Unlock()
		r.mu.Lock()
		charged, consumed, _ = r.peers[from].in.Usage()
		r.mu.Unlock()
		return used, charged, consumed
	}
}

// copyTime is how long a receive whose context has ended polls for the end of the sender's copy
// before it waits: more than a chunk takes that is not interrupted.
const copyTime = time.Millisecond

// reclaimLocked waits for the end of a blocking call's operation that was cancelled. A rendezvous
// request whose receiver does not answer, because it is stopped or does not call the library, is
// revoked: reads of the buffer fail from then on. One that is receiving the message gets WITHDRAW
// again and again, until it does not any more. A receive whose message is being read requeues it
// unless another waits for it; a sender that is stopped in the middle of a copy is waited for.
func (e *Engine) reclaimLocked(op *Op, gen uint64) {
	for op.state == opWithdrawing && e.caps.Revoke {
		if e.awaitGraceLocked(op, gen) {
			return
		}
		if op.state == opWithdrawing {
			op.endRequest(Status{}, errRevoked)
			return
		}
		op.withdraw()
	}
	if e.caps.Revoke && e.abandonLocked(op, gen) {
		return
	}
	_ = e.wait.Await(context.Background(), &op.Event, op, gen)
}

// abandonLocked abandons op if it is reading, as soon as the sender's processor is not in the
// middle of a copy to its buffer. It reports whether op has ended.
func (e *Engine) abandonLocked(op *Op, gen uint64) bool {
	for start := time.Now(); op.state == opReading; {
		switch ended, busy := op.abandon(); {
		case ended:
			return true
		case !busy:
			return false
		case time.Since(start) < copyTime:
			e.pollLocked()
		case e.awaitGraceLocked(op, gen):
			return true
		}
	}
	return false
}

// awaitGraceLocked waits for the end of op while its receiver may take its time, and reports
// whether it has ended.
func (e *Engine) awaitGraceLocked(op *Op, gen uint64) bool {
	ctx, cancel := e.cfg.grace()
	defer cancel()
	return e.wait.Await(ctx, &op.Event, op, gen) == nil
}

// endWithdrawn ends a receive whose message was withdrawn while it was received, or came from
// outside of the context. It is not posted again: later receives may have got later messages, and
// only its end keeps the order. A call of Recv that goes on to another message must not do so in a
// retired context, which may be used again then.
func (op *Op) endWithdrawn() { op.complete(Status{}, op.withdrawn()) }

func (op *Op) withdrawn() error {
	return cmp.Or(op.e.contexts.closed(op.tag, op.mask), ErrWithdrawn)
}

// takeWithdraw handles p's WITHDRAW. A request that is being received stays. Of one that is not
// here any more the FIN is on the way, and is the answer. One that the device may have matched,
// without having said so yet, is answered when it does. A Message that has it is of no more use.
func (p *peer) takeWithdraw(id uint32) {
	e := p.e
	if cost, ok := e.unexp.Withdraw(p.rank, id); ok {
		p.consumed(cost)
		p.sendCtrl(ctrl{kind: ctrlWithdrawn, id: id})
		return
	}
	if m := e.held[request{p.rank, id}]; m != nil {
		m.fail(ErrWithdrawn)
		p.sendCtrl(ctrl{kind: ctrlWithdrawn, id: id})
		return
	}
	if op := e.receiverLocked(request{p.rank, id}); op != nil {
		if op.linked && op.revoked() {
			p.endRevoked(op, op.withdrawn())
			return
		}
		op.read.withdraw = true
		p.sendCtrl(ctrl{kind: ctrlTaken, id: id})
	} else if len(p.withdraws) < maxWithdraws && !slices.Contains(p.withdraws, id) && p.mayBeMatched() {
		p.withdraws = append(p.withdraws, id)
	}
}

// maxWithdraws bounds peer.withdraws against one that withdraws what it has not sent.
const maxWithdraws = 1 << 10

// mayBeMatched reports whether the device has matched a message of p that may be a rendezvous
// request: which one, Incomplete tells.
func (p *peer) mayBeMatched() bool {
	return slices.ContainsFunc(p.e.off.slots.entries, func(s slotEntry) bool {
		return s.op != nil && s.op.state == opMatched && s.op.read.src == p.rank && s.op.read.appCtx&rndvName == 0
	})
}

// identified is called when the device has left a request to software, and so told which one it has
// matched: p may have sent WITHDRAW for it.
func (p *peer) identified(r *readState) {
	if i := slices.Index(p.withdraws, r.appCtx); i >= 0 {
		p.withdraws = slices.Delete(p.withdraws, i, i+1)
		r.withdraw = true
		p.sendCtrl(ctrl{kind: ctrlTaken, id: r.appCtx})
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

// receiverLocked finds the receive that has matched a request. The device has not many. Those that
// read are found by an index, which is kept: it takes less than their Ops, and who has withdrawn
// one message may withdraw more.
func (e *Engine) receiverLocked(r request) *Op {
	if e.readers == nil && e.reads.used != 0 {
		e.readers = map[request]*Op{}
		for _, s := range e.reads.entries {
			if s.op != nil && s.op.state == opReading {
				e.readers[s.op.read.request()] = s.op
			}
		}
	}
	if op := e.readers[r]; op != nil || e.off.slots.used == 0 {
		return op
	}
	for _, s := range e.off.slots.entries {
		if s.op != nil && s.op.state == opMatched && s.op.read.request() == r {
			return s.op
		}
	}
	return nil
}

// takeWithdrawn handles WITHDRAWN: the peer has removed the request, and the send ends. Without a
// WITHDRAW of this rank it is ignored, as the peer may still read the buffer.
func (p *peer) takeWithdrawn(id uint32) {
	op := p.e.requestOfLocked(p.rank, id)
	if op == nil || op.state != opWithdrawing && op.state != opTaken {
		return
	}
	op.endRequest(Status{}, ErrCanceled)
}
