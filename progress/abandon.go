package progress

import (
	"cmp"
	"slices"
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
		e.reads.release(op.slot)
	} else {
		e.tr.Abandon(r.src, op.slot.id())
		stand := e.newOpLocked()
		stand.state, stand.peer, stand.tag, stand.slot, stand.read = opAbandoned, r.src, tag, op.slot, r
		e.noteLocked(stand, noteStand, nil)
		e.reads.replace(op.slot, stand)
	}
	e.canceledLocked(op)
	if e.peers[r.src].lost == nil {
		e.returnLocked(r, tag)
	}
}

// abandonedLocked counts the end of a read whose receive has ended before.
func (e *Engine) abandonedLocked(op *Op) {
	if op.read.active == 0 {
		e.reads.release(op.slot)
		e.freeLocked(op)
	}
}

// returnLocked finds another receive for a request that was given back, or lets it wait for one; if its sender has asked for
// it meanwhile, that gets it.
func (e *Engine) returnLocked(r readState, tag uint64) {
	if r.asked {
		e.ctrlLocked(&e.peers[r.src], ctrl{kind: ctrlWithdrawn, id: r.appCtx})
		return
	}
	op, _, ok := e.posted.Find(tag)
	if ok && op.state == opPosted {
		e.posted.Match(tag)
		e.checkReceiveLocked(tag, op)
		if e.tags != nil {
			e.leftLocked(op)
		}
		op.read, op.tag = r.again(), tag
		e.startReadLocked(op)
		return
	}
	m := e.requestRecordLocked(r, tag)
	e.returned = slices.Insert(e.returned, e.returnedAtLocked(m.seq), m)
	if ok && op.state == opOffered {
		if op.cause == nil {
			op.wanted = m.seq
		}
		e.recallLocked(op, errReturned) // the device has it, live: only its answer frees it for this message
	}
}

// returnedAtLocked is where the request with this number is among those that wait once more, or would be.
func (e *Engine) returnedAtLocked(seq uint64) int {
	i, _ := slices.BinarySearchFunc(e.returned, seq, func(m *message, seq uint64) int { return cmp.Compare(m.seq, seq) })
	return i
}

// offerReturnedLocked looks for receives of the requests that wait once more: one that was asked back, perhaps for them, has got
// another message or has ended.
func (e *Engine) offerReturnedLocked() {
	for _, m := range slices.Clone(e.returned) {
		if !slices.Contains(e.returned, m) {
			continue // gone with its sender, whose loss a read of the one before has shown
		}
		if e.recalledForLocked(m) != nil {
			continue // a second receive would be asked back for nothing, and lose its place
		}
		e.unlinkRndvLocked(m)
		r, tag := m.reading(), m.tag
		e.dropRndvLocked(m)
		e.returnLocked(r, tag)
	}
}

// again is what a second reader of the message needs.
func (r readState) again() readState {
	return readState{src: r.src, appCtx: r.appCtx, rkey: r.rkey, va: r.va, total: r.total, seq: r.seq}
}

// recalledLocked gives a receive that the device has given up the message that it was asked back for. Had it the oldest one that it
// matches instead, it might take that from another receive, which would have lost its place for nothing.
func (e *Engine) recalledLocked(op *Op) {
	i := e.returnedAtLocked(op.wanted)
	m := e.returned[i]
	e.returned = slices.Delete(e.returned, i, i+1)
	e.pullLocked(op, m)
	e.offerReturnedLocked()
}

// promisedLocked tells whether a message that was given back is not for a receive that is only being posted: one is asked back from
// the device for it, or one that was posted before waits and matches, perhaps because it is asked back in order to end: when that
// has ended, the message is offered again.
func (e *Engine) promisedLocked(m *message) bool {
	if e.tags == nil {
		return false
	}
	_, _, waits := e.posted.Find(m.tag)
	return waits || e.recalledForLocked(m) != nil
}

// recalledForLocked finds the receive that is asked back for this very message, which nobody else gets until then.
func (e *Engine) recalledForLocked(m *message) *Op {
	if e.tags == nil {
		return nil
	}
	for _, s := range e.off.slots.entries {
		if s.op != nil && s.op.cause == errReturned && s.op.wanted == m.seq {
			return s.op
		}
	}
	return nil
}
