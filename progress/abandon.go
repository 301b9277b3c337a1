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
	if ok && e.recalledBeforeLocked(op, tag) {
		ok = false // it may turn out that the device has had a message for that one, and so this one cannot have had this
	}
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
	i, _ := slices.BinarySearchFunc(e.returned, m.seq, func(m *message, seq uint64) int { return cmp.Compare(m.seq, seq) })
	e.returned = slices.Insert(e.returned, i, m)
	if ok && op.state == opOffered {
		if op.cause == nil {
			op.wanted = m.seq
		}
		e.recallLocked(op, errReturned) // the device has it, live: only its answer frees it for this message
	}
}

// offerReturnedLocked looks for receives of the requests that wait once more: one that was asked back, perhaps for them, has got
// another message or has ended.
func (e *Engine) offerReturnedLocked() {
	for _, m := range slices.Clone(e.returned) {
		if !slices.Contains(e.returned, m) {
			continue // gone with its sender: the read of one before it has failed
		}
		if e.askedBackForLocked(m) != nil {
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

// recalledBeforeLocked tells whether the device has still to answer for a receive that it is asked back, which matches a message and
// was posted before op.
func (e *Engine) recalledBeforeLocked(op *Op, tag uint64) bool {
	if e.tags == nil {
		return false
	}
	place, _ := e.posted.Stamp(op.handle)
	return slices.ContainsFunc(e.off.slots.entries, func(s slotEntry) bool {
		return s.op != nil && s.op.state == opRecalled && (tag^s.op.tag)&s.op.mask == 0 && s.op.place < place
	})
}

// recalledLocked goes on with a receive that was asked back from the device for a message. That waits still: neither another receive
// nor its sender can have it, and the loss of its sender would have ended this receive.
func (e *Engine) recalledLocked(op *Op) {
	i := slices.IndexFunc(e.returned, func(m *message) bool { return m.seq == op.wanted })
	m := e.returned[i]
	e.returned = slices.Delete(e.returned, i, i+1)
	e.pullLocked(op, m)
	e.offerReturnedLocked()
}

// askedForLocked tells whether a message that was given back is for another receive than one that is only being posted. That comes
// behind each one that waits and matches, also behind one that is asked back from the device for such a message, and not behind one
// that is asked back in order to end.
func (e *Engine) askedForLocked(m *message) bool {
	if e.tags == nil {
		return false
	}
	if _, _, waits := e.posted.Find(m.tag); waits {
		return true
	}
	return slices.ContainsFunc(e.off.slots.entries, func(s slotEntry) bool {
		return s.op != nil && s.op.cause == errReturned && (m.tag^s.op.tag)&s.op.mask == 0
	})
}

// askedBackForLocked is the receive that is asked back from the device for this very message, or nil.
func (e *Engine) askedBackForLocked(m *message) *Op {
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
