package progress

import "github.com/tagmatch/tagmatch/transport"

// A blocking receive whose context ends while its message is being read requeues the message, if
// no posted receive could have it: the reads are abandoned, so that the buffer is free at once, and
// the request is unexpected again, at its place by order of arrival, as if it had not been matched.
// Where another receive waits that matches the message, which may be in a device, the read goes on
// to its end.

// abandon ends a receive that reads, unless another one waits that its message matches; busy: or
// its sender's processor is in the middle of a copy to its buffer, which may be over the next time.
func (op *Op) abandon() (ended, busy bool) {
	e := op.e
	r, tag := op.read, op.tag
	if op.linked && op.revoked() {
		e.peers[r.src].endRevoked(op, ErrCanceled)
		return true, false
	}
	if _, _, ok := e.posted.Find(tag); ok {
		return false, false
	}
	if r.active > 0 && !e.tr.Abandon(r.src, op.slot.id()) {
		return false, true
	}
	if op.linked {
		e.peers[r.src].readq.remove(op)
	}
	if r.active == 0 {
		op.releaseRead()
	} else {
		op.unread()
		abandoned := e.newOpLocked(noteAbandoned, r.src, tag, 0, nil)
		abandoned.slot, abandoned.read = op.slot, r
		abandoned.move(opAbandoned)
		e.reads.replace(op.slot, abandoned)
	}
	op.complete(Status{}, ErrCanceled)
	p := &e.peers[r.src]
	switch {
	case p.lost != nil, e.broken != nil, r.err == transport.ErrDeregistered: // nobody can read it
	case r.err == transport.ErrUnreadable:
		p.sendCtrl(ctrl{kind: ctrlUnreadable, id: r.appCtx})
	case r.err != nil && r.err != transport.ErrUnwritable: // which another receive need not meet
		p.lose(r.err)
	case r.withdraw:
		p.sendCtrl(ctrl{kind: ctrlWithdrawn, id: r.appCtx})
	case e.refuses(tag):
		p.fin(r.appCtx)
	default:
		e.unexp.Requeue(r.src, tag, r.seq, r.unmatched())
	}
	return true, false
}

// abandoned counts the end of a read whose receive has ended before.
func (op *Op) abandoned() {
	if op.read.active == 0 {
		op.releaseRead()
		op.vanish()
	}
}
