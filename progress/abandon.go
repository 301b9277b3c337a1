package progress

import "github.com/tagmatch/tagmatch/transport"

// A blocking receive whose context ends while its message is being read requeues the message, if
// no posted receive could have it: the reads are abandoned, so that the buffer is free at once, and
// the request is unexpected again, at its place by order of arrival, as if it had not been matched.
// Where another receive waits that matches the message, which may be in a device, the read goes on
// to its end.

// abandon ends a receive that reads, unless another one waits that its message matches, or a device
// was reading, which alone knows where; busy: or its sender's processor is in the middle of a copy
// to its buffer, which may be over the next time.
func (op *Op) abandon() (ended, busy bool) {
	e := op.e
	r, tag := op.read, op.tag
	if _, _, ok := e.posted.Find(tag); ok || r.want == 0 {
		return false, false
	}
	if !op.stopReading() {
		return false, true
	}
	p := e.peers[r.src]
	switch {
	case e.broken != nil:
		op.complete(Status{}, e.broken)
	case p.lost != nil: // later messages of it stay, so its caller must hear of this one
		op.complete(Status{}, peerError(p.rank, p.lost))
	default:
		op.complete(Status{}, ErrCanceled)
		p.takeBack(&r, tag)
	}
	return true, false
}

// stopReading frees the buffer and the slot of a receive that reads; those reads that are under way
// are abandoned. False: its sender's processor is in the middle of a copy to the buffer.
func (op *Op) stopReading() bool {
	e, r := op.e, op.read
	if r.active > 0 && !e.tr.Abandon(r.src, op.slot.id()) {
		return false
	}
	if p := e.peers[r.src]; op.linked && op.revoked() {
		p.revoked.remove(op)
	} else if op.linked {
		p.readq.remove(op)
	}
	if r.active == 0 {
		op.e.reads.release(op)
		return true
	}
	e.reads.forget(op)
	abandoned := e.newOpLocked(noteAbandoned, r.src, op.tag, 0, nil)
	abandoned.slot, abandoned.read = op.slot, r
	abandoned.move(opAbandoned)
	e.reads.replace(op.slot, abandoned)
	return true
}

// takeBack requeues a message that a receive has abandoned, whatever became of its reads: the next
// receive meets the same, and tells of it. Where the sender has taken the message back its WITHDRAW
// finds it there, or its loss, which then takes those behind it too.
func (p *peer) takeBack(r *readState, tag uint64) {
	e := p.e
	switch {
	case r.withdraw:
		p.sendCtrl(ctrl{kind: ctrlWithdrawn, id: r.appCtx})
	case e.contexts.refuses(tag):
		p.fin(r.appCtx)
	default:
		e.unexp.Requeue(r.src, tag, r.seq, r.unmatched())
	}
	switch r.err {
	case nil, transport.ErrDeregistered, transport.ErrUnreadable, transport.ErrUnwritable:
	default: // see readEnded
		p.lose(r.err)
	}
}

// abandoned counts the end of a read whose receive has ended before.
func (op *Op) abandoned() {
	if op.read.active == 0 {
		op.e.reads.release(op)
		op.vanish()
	}
}
