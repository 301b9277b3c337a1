//go:build invariants

package progress

import (
	"slices"

	"github.com/tagmatch/tagmatch/internal/invariant"
)

// What must hold whenever nobody is inside the engine, checked at the end of polls. "V1" to "V19"
// are the rules of TMO 7.1.

const (
	checkSmall = 64 // an engine with more entries than this is checked only now and then
	checkShare = 8  // so that a check's work on each entry is shared by an eighth of as many calls, at least checkSmall
)

// checkPolledLocked follows a poll that brought n events, and checks everything: where there is
// much of it, only now and then, or tests with deep queues would never end. Polls that bring
// nothing, after which nothing was posted or cancelled either, change next to nothing.
func (e *Engine) checkPolledLocked(n int) {
	c := &e.inv
	if n == 0 && !c.moved && c.idle < checkSmall && !invariant.Thorough {
		c.idle++
		return
	}
	c.mu.Lock()
	entries := len(c.live) + e.posted.Len() + e.unexp.Len() + len(e.returned) + e.sends.used + e.reads.used
	c.mu.Unlock()
	if c.idle++; e.closed || !invariant.Thorough && entries > checkSmall && c.idle < max(checkSmall, entries/checkShare) {
		return
	}
	c.idle, c.moved = 0, false
	e.checkAllLocked()
}

func (e *Engine) checkAllLocked() {
	e.checkShadowLocked()
	e.checkUnmatchedLocked()
	e.checkMessagesLocked()
	e.checkSendsLocked()
	e.checkReadsLocked()
	e.checkPeersLocked()
	e.wait.Check()
	if e.off.tags != nil {
		e.off.check(e.posted)
	}
}

// checkEntry checks an Op in some list: it is under way, and in one of these states.
func checkEntry(op *Op, rule, list string, states ...opState) {
	invariant.Check(op.note != nil && op.note.underWay(), rule, "%s has an operation that has ended: %s", list, op.note.where())
	invariant.Check(slices.Contains(states, op.state), rule, "%s has an operation that is %s: %s", list, opStateNames[op.state], op.note.where())
}

// checkShadowLocked is V5: the shadow list is exactly the posted and offered receives, in the order
// of posting. The records of live operations are an account of their own.
func (e *Engine) checkShadowLocked() {
	last, listed := uint64(0), 0
	from := make([]int, len(e.from))
	for h, op := range e.posted.All() {
		checkEntry(op, "V5", "the shadow list", opPosted, opOffered)
		invariant.Check(op.handle == h, "V5", "a receive is in the shadow list under another handle: %s", op.note.where())
		invariant.Check(op.note.order > last, "V5", "a receive comes in the shadow list behind one that was posted later: %s", op.note.where())
		last = op.note.order
		listed++
		from[1+op.peer]++
	}
	invariant.Check(slices.Equal(from, e.from), "V5", "the shadow list has receives by source (any first) %v, counted are %v", from, e.from)
	c := &e.inv
	c.mu.Lock()
	defer c.mu.Unlock()
	for r := range c.live {
		if !r.underWay() {
			continue
		}
		op := r.op
		if r.kind.receives() && (op.state == opPosted || op.state == opOffered) {
			listed--
		}
		invariant.Check(op.note == r, "pool", "an operation was posted with the memory of one that is under way: %s", r.where())
	}
	invariant.Check(listed == 0, "V5", "the shadow list has %d receives too many (below 0: too few)", listed)
}

// checkUnmatchedLocked is V7, and with it V18: no receive waits beside a message that it matches.
func (e *Engine) checkUnmatchedLocked() {
	check := func(m *message) {
		if op, _, ok := e.posted.Find(m.tag); ok {
			invariant.Broken("V7", "a message from %d, tag %#x, waits beside its receive: %s", m.src, m.tag, op.note.where())
		}
	}
	for _, m := range e.unexp.All() {
		check(m)
	}
	for _, m := range e.returned {
		check(m)
	}
}

// checkMessagesLocked counts the unexpected messages: bytes, credit, requests by peer, order of
// arrival.
func (e *Engine) checkMessagesLocked() {
	last := uint64(0)
	charged := map[int]uint64{}
	requests := map[*message]bool{}
	for h, m := range e.unexp.All() {
		invariant.Check(!m.free(), "pool", "the unexpected messages have one that is free")
		invariant.Check(m.seq > last, "V1", "message %d of %d is behind a later one", m.seq, m.src)
		last = m.seq
		if m.rndv {
			invariant.Check(m.handle == h, "list", "request %d of %d is under another handle", m.seq, m.src)
			requests[m] = true
		}
		invariant.Check(m.charged, "credit", "message %d of %d is not charged", m.seq, m.src)
		charged[int(m.src)] += m.cost()
	}
	last = 0
	for _, m := range e.returned {
		invariant.Check(!m.free() && m.rndv && m.handle == 0, "list", "a request that was given back is none")
		invariant.Check(m.seq > last, "V1", "request %d of %d is behind a later one", m.seq, m.src)
		last = m.seq
		requests[m] = true
	}
	var bytes, committed int64
	for i := range e.peers {
		bytes += int64(charged[i])
		committed += e.peers[i].in.held()
	}
	invariant.Check(bytes == e.m.UnexpectedBytes, "credit", "%d bytes of unexpected messages are counted, there are %d", e.m.UnexpectedBytes, bytes)
	invariant.Check(committed == e.pool.committed, "credit", "%d bytes are committed to peers, %d are counted", committed, e.pool.committed)
	for i := range e.peers {
		p := &e.peers[i]
		p.checkAccount(charged[i])
		invariant.Check(len(p.unknown) == 0 || p.unnamed(), "list", "rank %d has asked for a request that the device cannot have matched", i)
		here := 0
		for m := p.rndvs; m != nil; m = m.next {
			invariant.Check(requests[m] && int(m.src) == i, "list", "rank %d has a request that is in no queue: tag %#x, %d bytes", i, m.tag, m.length)
			invariant.Check(p.lost == nil, "list", "rank %d is lost and has a request: tag %#x, %d bytes", i, m.tag, m.length)
			invariant.Check(p.named == nil || p.named[m.appCtx] == m, "list", "rank %d has a request that is not found by its name: tag %#x", i, m.tag)
			delete(requests, m)
			here++
		}
		invariant.Check(p.named == nil || len(p.named) == here, "list", "rank %d has %d requests, %d are found by name", i, here, len(p.named))
	}
	invariant.Check(len(requests) == 0, "list", "%d requests are in a queue and unknown to their peers", len(requests))
}

// checkAccount checks the credit of a peer, both ways.
func (p *peer) checkAccount(buffered uint64) {
	a, o := &p.in.account, &p.out
	invariant.Check(a.received-a.consumed == buffered, "credit", "%d bytes of rank %d are received and %d consumed; %d are buffered", a.received, p.rank,
		a.consumed, buffered)
	if p.lost != nil {
		return
	}
	invariant.Check(a.received <= a.told || a.excess, "credit", "%d bytes of rank %d are received, %d allowed", a.received, p.rank, a.told)
	invariant.Check(a.window >= a.initial, "credit", "rank %d: window %d, initially %d", p.rank, a.window, a.initial)
	invariant.Check(!o.empty() || !o.heldUp() && len(o.wants) == 0 && !o.all, "list", "nothing is held up to rank %d, episode %d", p.rank, o.episode)
	invariant.Check(len(o.wants) <= maxWants && len(p.in.wants) <= maxWants, "list", "rank %d: %d WANTs here, %d there", p.rank, len(o.wants), len(p.in.wants))
	invariant.Check(p.in.heldUp() == slices.Contains(p.e.held, p.rank), "list", "rank %d: held up is %v", p.rank, p.in.heldUp())
	for h, op := range p.e.posted.All() {
		if p.in.heldUp() && !p.in.all && (op.peer == p.rank || op.peer == AnySource) {
			invariant.Check(slices.ContainsFunc(p.in.wants, func(n sentWant) bool { return n.handle == h }), "V18",
				"rank %d is held up and was not told of a receive that waits: %s", p.rank, op.note.where())
		}
	}
}

// checkSendsLocked is V16: what a peer may read is registered.
func (e *Engine) checkSendsLocked() {
	checkSlots("sends", &e.sends, func(op *Op) {
		checkEntry(op, "V16", "the table of rendezvous sends", opRequested, opWithdrawing, opTaken)
		invariant.Check(len(op.buf) == 0 || op.region != nil, "V16", "a buffer that a peer may read is not registered: %s", op.note.where())
		invariant.Check(e.peers[op.peer].lost == nil, "list", "a send to a rank that is lost has not ended: %s", op.note.where())
	})
}

// checkReadsLocked checks the receives that read: each has a read under way or waits for room, or
// it would wait for ever.
func (e *Engine) checkReadsLocked() {
	reading := 0
	checkSlots("reads", &e.reads, func(op *Op) {
		checkEntry(op, "V18", "the table of reads", opReading, opAbandoned)
		r := &op.read
		invariant.Check(r.active > 0 || op.linked, "V18", "a receive neither reads nor waits for room: %s", op.note.where())
		invariant.Check(r.posted <= r.want && (op.state == opAbandoned || r.want <= uint64(len(op.buf))), "V4", "%d of %d bytes are read: %s", r.posted, r.want, op.note.where())
		if op.state == opReading {
			reading++
			invariant.Check(e.readers == nil || e.readers[r.request()] == op, "list", "a receive is not found by what it reads: %s", op.note.where())
		}
	})
	invariant.Check(e.readers == nil || len(e.readers) == reading, "list", "%d receives read, %d are found by what they read", reading, len(e.readers))
}

// checkSlots checks a table, and each operation in it: it is in the slot that it names, and all are
// counted.
func checkSlots(what string, t *slots, each func(op *Op)) {
	used := 0
	for i := range t.entries {
		op := t.entries[i].op
		if op == nil {
			continue
		}
		used++
		each(op)
		invariant.Check(op.slot == slot{uint32(i), t.entries[i].gen}, "slot", "an operation is in another slot of the %s than its own: %s", what, op.note.where())
	}
	invariant.Check(used == t.used, "slot", "%d slots of %s are counted, %d are used", t.used, what, used)
}

// checkPeersLocked checks what waits for room: nothing of it can be forgotten.
func (e *Engine) checkPeersLocked() {
	var queued int64
	for i := range e.peers {
		p := &e.peers[i]
		if !p.out.empty() {
			for h, op := range p.out.queue.All() {
				checkEntry(op, "list", "a queue of sends", opQueued)
				invariant.Check(op.peer == i && op.handle == h, "list", "a send is in the queue of rank %d: %s", i, op.note.where())
				queued += sendCost
			}
		}
		for op := p.readq.head; op != nil; op = op.next {
			checkEntry(op, "list", "a queue of reads", opReading)
			invariant.Check(op.linked && op.read.src == i, "list", "a receive is in the queue of rank %d: %s", i, op.note.where())
		}
		waits := !p.out.empty() && (!p.out.heldUp() || p.out.permitted()) || !p.readq.empty() || len(p.fins)+len(p.ctrls) != 0
		waits = waits || p.out.told != p.out.episode || p.in.credit || e.off.recalled == 0 && (p.in.allDue || !p.in.all && p.in.dueNext() >= 0)
		invariant.Check(p.dirty || !waits, "V18", "what waits for room at rank %d is not posted again", i)
		invariant.Check(p.dirty == slices.Contains(e.dirty, i), "V18", "rank %d: dirty is %v", i, p.dirty)
		invariant.Check(p.lost == nil || p.out.empty(), "list", "a send waits for room at rank %d, which is lost", i)
	}
	invariant.Check(queued == e.queued, "list", "%d bytes of queued sends are counted, there are %d", e.queued, queued)
	for _, op := range e.flushers {
		checkEntry(op, "list", "the list of flushes", opFlushing)
	}
	for _, op := range e.rooms {
		checkEntry(op, "list", "the list of calls of Room", opRoom)
	}
}

// checkLost follows the loss of p. What its transport reports later of messages that were
// matched before may wait again.
func (p *peer) checkLost() {
	invariant.Check(p.out.empty(), "list", "a send waits for room at rank %d, which is lost", p.rank)
	invariant.Check(p.readq.empty(), "list", "a receive waits for room to read from rank %d, which is lost", p.rank)
	invariant.Check(p.rndvs == nil, "list", "a request of rank %d stays, which is lost", p.rank)
}
