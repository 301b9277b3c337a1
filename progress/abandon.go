package progress

import (
	"cmp"
	"slices"

	"github.com/tagmatch/tagmatch/transport"
)

// A blocking receive whose context ends while its message is being read gives the message back: the reads are abandoned, so
// that the buffer is free at once, and the request waits for another receive at its old place, as if it had not been matched.

// abandonLocked ends a receive that reads.
func (e *Engine) abandonLocked(op *Op) {
	r, tag := op.read, op.tag
	if op.queued {
		e.peers[r.src].readq.remove(op)
	}
	if r.active == 0 {
		e.releaseReadLocked(op)
	} else {
		e.unreadLocked(op)
		e.tr.Abandon(r.src, op.slot.id())
		stand := e.newOpLocked()
		stand.state, stand.peer, stand.tag, stand.slot, stand.read = opAbandoned, r.src, tag, op.slot, r
		e.noteLocked(stand, noteStand, nil)
		e.reads.replace(op.slot, stand)
	}
	e.canceledLocked(op)
	p := &e.peers[r.src]
	switch {
	case p.lost != nil, e.broken != nil, r.err == transport.ErrWithdrawn: // nobody can read it
	case r.err != nil:
		e.lostLocked(p, r.err)
	default:
		m := e.requestRecordLocked(r, tag)
		m.asked = r.asked
		e.placeLocked(m)
	}
}

// abandonedLocked counts the end of a read whose receive has ended before.
func (e *Engine) abandonedLocked(op *Op) {
	if op.read.active == 0 {
		e.releaseReadLocked(op)
		e.freeLocked(op)
	}
}

// placeLocked finds another receive for a request that was given back and is in no queue, or lets it wait for one; if its sender has
// asked for it meanwhile, that gets it.
func (e *Engine) placeLocked(m *message) {
	if m.asked {
		e.ctrlLocked(&e.peers[m.src], ctrl{kind: ctrlWithdrawn, id: m.appCtx})
		e.dropRndvLocked(m)
		return
	}
	op, _, _ := e.posted.Find(m.tag)
	if op != nil && op.state == opPosted {
		e.unpostLocked(op)
		e.checkReceiveLocked(m.tag, op)
		if e.tags != nil {
			e.leftLocked(op)
		}
		e.pullLocked(op, m)
		return
	}
	e.returned = slices.Insert(e.returned, e.returnedAtLocked(m.seq), m)
	if op != nil {
		op.wanted = m.seq
		e.recallLocked(op, errReturned) // the device has it, live: only its answer frees it for this message
	}
}

// returnedAtLocked is where the request with this number is among those that were given back, or would be.
func (e *Engine) returnedAtLocked(seq uint64) int {
	i, _ := slices.BinarySearchFunc(e.returned, seq, func(m *message, seq uint64) int { return cmp.Compare(m.seq, seq) })
	return i
}

// placeReturnedLocked looks once more for receives of the requests that were given back, when one that a request waited for has got
// another message, or is to end. Reading one can show that its sender is lost, whose others are gone then.
func (e *Engine) placeReturnedLocked() {
	for seq := uint64(0); ; {
		i := e.returnedAtLocked(seq)
		if i == len(e.returned) {
			return
		}
		m := e.returned[i]
		seq = m.seq + 1
		if !e.promisedLocked(m) { // a second receive would be asked back for nothing, and lose its place
			e.returned = slices.Delete(e.returned, i, i+1)
			e.placeLocked(m)
		}
	}
}

// pullReturnedLocked gives a receive that the device has given up the message that it was asked back for. With the oldest one that it
// matches it might have another receive's, which would have lost its place for nothing.
func (e *Engine) pullReturnedLocked(op *Op) {
	i := e.returnedAtLocked(op.wanted)
	m := e.returned[i]
	e.returned = slices.Delete(e.returned, i, i+1)
	e.pullLocked(op, m)
}

// promisedLocked tells whether a receive is asked back from the device for a message that was given back. Nobody else gets it then.
func (e *Engine) promisedLocked(m *message) bool { return e.recalledForLocked(m) != nil }

// recalledForLocked is the receive that is asked back from the device for this very message, or nil.
func (e *Engine) recalledForLocked(m *message) *Op {
	if e.tags == nil || m.handle != 0 {
		return nil
	}
	for _, s := range e.off.slots.entries {
		if s.op != nil && s.op.cause == errReturned && s.op.wanted == m.seq {
			return s.op
		}
	}
	return nil
}
