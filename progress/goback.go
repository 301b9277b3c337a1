package progress

import (
	"cmp"

	"github.com/tagmatch/tagmatch/matching"
)

// A receive does not end because its message is withdrawn, or was an intruder's: it goes back to
// its place in the order of receives, and takes the next message that matches. Receives that were
// posted after it may have had later messages by then. It goes to the end where its place is lost.

// loseMessage sends a receive back whose message its sender has withdrawn. It returns false where
// the reads go on: a device does them, or the sender's processor is in the middle of a copy.
func (op *Op) loseMessage() bool {
	if op.state != opReading || !op.e.caps.Revoke && op.read.active != 0 || !op.stopReading() {
		op.read.withdraw = true
		return false
	}
	op.goBack()
	return true
}

// goBack returns a receive, which has its buffer again, to its place. One that was to end meanwhile
// does so, and so does that of a Message, which can get no other.
func (op *Op) goBack() {
	e := op.e
	e.m.Returned++
	op.read.err = nil
	if op.vec != nil {
		op.vec.dropMemory(e)
	}
	switch {
	case op.canceled:
		op.complete(Status{}, ErrCanceled)
	case op.kind == kindMessage:
		op.complete(Status{}, cmp.Or(e.contexts.barredBy(op.tag), errWithdrawn))
	default:
		if t := e.trace; t != nil {
			t.posted(op, false) // it has lost its message, also where it gets another at once
		}
		op.receive()
	}
}

// keepsPlace reports whether op can have its place again. It cannot where a device has a later
// receive that overlaps it, and matches for itself (V6); nor where senders wait for credit: a later
// receive may be named to them already, whose message op would take, and nobody would name that
// receive again.
func (op *Op) keepsPlace() bool {
	return len(op.e.memory.HeldUp()) == 0 && !op.e.off.overtaken(op)
}

// overtaken reports whether the device has a receive that overlaps op and was posted later.
func (o *offload) overtaken(op *Op) bool {
	posted := op.e.posted
	place := posted.Place(op.handle)
	for k := range o.slots.ops() {
		if k.state != opOffloaded || !matching.Overlap(op.tag, op.mask, k.tag, k.mask) {
			continue
		}
		if seq, _ := posted.Seq(k.handle); seq > place {
			return true
		}
	}
	return false
}

// returned keeps in software a receive that is back in its place: the device could only have it
// last.
func (o *offload) returned(op *Op) {
	if o.tags == nil {
		return
	}
	seq, _ := op.e.posted.Seq(op.handle)
	op.kept = o.kept.Return(seq, op.tag, op.mask, op)
}
