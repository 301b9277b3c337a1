//go:build invariants

package progress

import (
	"slices"
	"sync"

	"github.com/tagmatch/tagmatch/internal/invariant"
	"github.com/tagmatch/tagmatch/matching"
)

// engineCheck is the shadow state of what the engine does. Fields without a word are guarded by
// Engine.mu.
type engineCheck struct {
	mu    sync.Mutex           // of the two that follow; consumers of requests have no other
	live  map[*record]struct{} // operations whose outcome nobody has taken
	posts uint64

	moved   bool               // an operation has changed its state since the last full check
	polling bool               // in transport.Poll
	idle    int                // polls since the last full check
	orders  uint64             // receives that were put into the posted-receive queue
	settled uint32             // unexpected messages of the list's device that are done with (V8)
	due     *foundReceive      // whose forced DEL is not posted (V9)
	device  map[uint64]*record // receives that the device has
	looked  int                // entries of its table that were looked at (V6)
	matches uint32             // by software (V1 to V3)
}

// Nonsense that is told from what is meant.
const (
	poisonInt    = -0x2424242424242425
	poisonWord   = 0xdbdbdbdbdbdbdbdb
	poisonHandle = matching.Handle(poisonWord)
)

var poisonSlot = slotOf(poisonWord)

func slotOf(id uint64) slot { return slot{index: uint32(id), gen: uint32(id >> 32)} }

// checkUnused looks at an Op that comes out of the pool: nobody has touched it there.
func (op *Op) checkUnused() {
	invariant.Check(op.note == nil && op.peer == poisonInt && op.tag == poisonWord && op.slot == poisonSlot && op.handle == poisonHandle,
		"poison", "an operation in the pool was written to")
	op.CheckUnused()
	op.checkFree()
}

// checkFree finds what still points to an Op that nobody uses, or what it has left behind.
func (op *Op) checkFree() {
	invariant.Check(!op.linked && op.prev == nil, "list", "an operation is freed in a queue: %s", op.note.where())
	invariant.Check(op.region == nil, "V16", "an operation is freed while its buffer is registered: %s", op.note.where())
	invariant.Check(op.state == opEnded && op.buf == nil, "pool", "an operation is freed before it has ended: %s", op.note.where())
	invariant.Check(op.err == nil && op.vec == nil && op.message == nil && op.read.err == nil, "pool",
		"an operation is freed and keeps what is the program's: %s", op.note.where())
}

// poison ends an Op's life, in the hands of its consumer. What waiters of the past may still read
// under the lock stays.
func (op *Op) poison() {
	r := op.note
	invariant.Check(r != nil, "pool", "an operation is freed twice")
	op.checkFree()
	c := &op.e.inv
	c.mu.Lock()
	_, ok := c.live[r]
	delete(c.live, r)
	c.mu.Unlock()
	invariant.Check(ok, "pool", "an operation is freed twice: %s", r.where())
	at := invariant.Here()
	r.consumed.Store(&at)
	op.clear()
}

// clear fills an Op that is in the pool, or about to come out of it for the first time.
func (op *Op) clear() {
	op.note = nil
	op.peer, op.tag, op.mask = poisonInt, poisonWord, poisonWord
	op.handle, op.slot, op.added = poisonHandle, poisonSlot, poisonWord&(1<<32-1)
}

// checkMove looks at an operation that is about to come to another state.
func (op *Op) checkMove(to opState, allowed []opState) {
	op.e.mu.AssertHeld("an operation")
	invariant.Check(slices.Contains(allowed, to), "state", "an operation that is %s becomes %s: %s",
		opStateNames[op.state], opStateNames[to], op.note.where())
	c := &op.e.inv
	c.moved = true
	switch to {
	case opNew:
		op.checkUnused()
	case opRequested:
		invariant.Check(len(op.buf) == 0 || op.region != nil, "V16", "a buffer that a peer may read is not registered: %s", op.note.where())
	case opPosted, opReading:
		if op.note.order == 0 || to == opPosted && !op.back {
			c.orders++
			op.note.order = c.orders
		}
	case opOffloaded:
		c.added(op)
	case opMatched:
		invariant.Check(c.covers(op.e, op.read.src), "V17", "the device matches a message of rank %d, which comes by another: %s", op.read.src,
			op.note.where())
	case opEnded:
		op.checkEnd()
	}
}

// checkEnd looks at an operation that is about to end: nothing has it any more.
func (op *Op) checkEnd() {
	e := op.e
	r := op.note
	invariant.Check(!op.linked, "list", "an operation ends in a queue: %s", r.where())
	if op.state == opQueued {
		invariant.Check(!e.peers[op.peer].out.Waits(uint64(op.handle), op), "list", "a send ends in its peer's queue: %s", r.where())
	}
	invariant.Check(op.region == nil, "V16", "an operation ends while its buffer is registered: %s", r.where())
	for _, t := range e.tables() {
		i := int(op.slot.index)
		invariant.Check(i >= len(t.entries) || t.entries[i].op != op, "slot", "an operation ends with a slot: %s", r.where())
	}
	if r.kind.receives() {
		_, ok := e.posted.Seq(op.handle)
		invariant.Check(!ok, "V5", "a receive ends in the posted-receive queue: %s", r.where())
	}
	if r.kind.receives() && e.off.kept != nil {
		_, ok := e.off.kept.Seq(op.kept)
		invariant.Check(!ok, "V5", "a receive ends in the list of those that software keeps: %s", r.where())
	}
}

// checkTaken finds a slot that is released twice.
func (t *slots) checkTaken(s slot) {
	invariant.Check(int(s.index) < len(t.entries), "slot", "slot %d of %d is released", s.index, len(t.entries))
	en := &t.entries[s.index]
	invariant.Check(en.gen == s.gen, "slot", "slot %d is released in its generation %d and is in generation %d: %s", s.index, s.gen, en.gen, en.note.where())
}

// enterPoll and leavePoll are around transport.Poll, which does not nest.
func (c *engineCheck) enterPoll(e *Engine) {
	e.mu.AssertHeld("the transport")
	invariant.Check(!c.polling, "owner", "a poll inside of a poll")
	c.polling = true
}

func (c *engineCheck) leavePoll() { c.polling = false }

// callback is at the start of all callbacks.
func (c *engineCheck) callback(e *Engine) {
	e.mu.AssertHeld("the sink")
	invariant.Check(c.polling, "owner", "the sink is called outside of Poll")
}

// closed checks what must hold once an engine is closed: everything has ended.
func (c *engineCheck) closed(e *Engine) {
	for _, r := range c.requests(func(*record) bool { return true }) {
		invariant.Check(!r.underWay(), "completion", "an operation has not ended with its engine: %s", r.where())
	}
	c.dropBuffers()
	invariant.Check(e.sends.used == 0 && e.reads.used == 0, "slot", "%d sends and %d reads have slots after the end", e.sends.used, e.reads.used)
	c.due, c.device = nil, nil
}
