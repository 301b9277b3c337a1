package progress

import (
	"context"
	"fmt"

	"github.com/tagmatch/tagmatch/internal/trace"
	"github.com/tagmatch/tagmatch/progress/internal/unexpected"
)

// Send sends buf to rank dst and returns when buf may be used again. When ctx ends first the send
// is cancelled; the call returns once the buffer is free, with ctx's error if the message was not
// sent. An error that is ErrMaybeDelivered too says that the receiver did not answer: it may have
// the message.
func (e *Engine) Send(ctx context.Context, dst int, tag uint64, buf []byte) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	e.mu.Lock()
	if e.sendNowLocked(dst, tag, buf) {
		e.mu.Unlock()
		return nil
	}
	return e.sendSlowLocked(ctx, dst, tag, buf, false)
}

// Ssend is Send that returns when the message is matched.
func (e *Engine) Ssend(ctx context.Context, dst int, tag uint64, buf []byte) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	e.mu.Lock()
	return e.sendSlowLocked(ctx, dst, tag, buf, true)
}

// Isend starts a send. It never blocks.
func (e *Engine) Isend(dst int, tag uint64, buf []byte) Request {
	e.mu.Lock()
	r := e.isendLocked(dst, tag, buf)
	if len(buf) >= bulk {
		e.leaveLocked()
	}
	e.mu.Unlock()
	return r
}

func (e *Engine) isendLocked(dst int, tag uint64, buf []byte) Request {
	if e.sendNowLocked(dst, tag, buf) {
		return e.sentLocked(dst, tag, buf).request()
	}
	op := e.newSendLocked(noteSend, dst, tag, buf)
	r := op.request()
	op.isend()
	return r
}

// Issend is Isend that completes when the message is matched.
func (e *Engine) Issend(dst int, tag uint64, buf []byte) Request {
	e.mu.Lock()
	op := e.newSendLocked(noteSend, dst, tag, buf)
	op.sync = true
	r := op.request()
	op.isend()
	e.leaveLocked()
	e.mu.Unlock()
	return r
}

// sendNowLocked sends an eager message where neither queue, credit nor room is in the way. It needs
// no Op, as nothing is left to do.
func (e *Engine) sendNowLocked(dst int, tag uint64, buf []byte) bool {
	e.mu.AssertHeld("a peer's credit")
	if uint(dst) >= uint(len(e.peers)) || len(buf) > e.cfg.EagerLimit {
		return false
	}
	p := e.peers[dst]
	if p == nil {
		return false
	}
	cost := unexpected.EagerCost(len(buf))
	if e.broken != nil || p.lost != nil || !p.out.Empty() || !p.covers(cost) {
		return false
	}
	if e.tr.SendEager(dst, uint32(e.cfg.Rank), tag, buf) != nil {
		return false // the slow path handles the error
	}
	p.out.Charge(cost)
	p.sentBytes.eager += uint64(len(buf))
	e.m.EagerSent++
	if t := e.trace; t != nil {
		t.sent(trace.Sent, p, 0, tag, len(buf))
	}
	return true
}

func (e *Engine) sendSlowLocked(ctx context.Context, dst int, tag uint64, buf []byte, sync bool) error {
	if err := e.checkSendLocked(dst, tag); err != nil {
		e.mu.Unlock()
		return err
	}
	op := e.newSendLocked(noteSendCall, dst, tag, buf)
	op.sync = sync
	n := op.note
	op.submit()
	if t := e.trace; t != nil && !op.Ended() {
		t.call(trace.Call, op)
	}
	_, err := e.callLocked(ctx, op)
	e.mu.Unlock()
	n.outcome(err)
	return err
}

func (op *Op) isend() {
	e := op.e
	if err := e.checkSendLocked(op.peer, op.tag); err != nil {
		op.complete(Status{}, err)
		return
	}
	if op.start() { // only sends that wait count against SendLimit
		return
	}
	if e.backlog.full() {
		refusals.Add(1)
		op.endSend(Status{}, refusal{fmt.Errorf("%w: the sends that wait take %d bytes of the SendLimit of %d: "+
			"wait for some of them, or with Room", ErrFull, e.backlog.bytes, e.backlog.limit)})
		return
	}
	e.peers[op.peer].enqueue(op)
}

func (e *Engine) checkSendLocked(dst int, tag uint64) error {
	if e.broken != nil {
		return e.broken
	}
	if err := e.contexts.barredBy(tag); err != nil {
		return err
	}
	if dst < 0 || dst >= len(e.peers) {
		return fmt.Errorf("%w: rank %d of %d", ErrInvalid, dst, len(e.peers))
	}
	if lost := e.peers.loss(dst); lost != nil {
		return peerError(dst, lost)
	}
	return nil
}

func (e *Engine) sentStatus(tag uint64, n int) Status {
	return Status{Source: e.cfg.Rank, Tag: tag, Len: int64(n)}
}

// submit sends op, or queues it.
func (op *Op) submit() {
	op.e.mu.AssertHeld("a peer's queues")
	if !op.start() {
		op.e.peers[op.peer].enqueue(op)
	}
}

// start sends op if no other send waits in front of it, and reports whether it did.
func (op *Op) start() bool {
	p := op.e.peer(op.peer)
	return p.out.Empty() && p.covers(op.cost()) && p.launch(op)
}
