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

// polled follows a poll that brought n events, and checks everything: where there is much of it,
// only now and then, or tests with deep queues would never end. Polls that bring nothing, after
// which nothing was posted or cancelled either, change next to nothing.
func (c *engineCheck) polled(e *Engine, n int) {
	if n == 0 && !c.moved && c.idle < checkSmall && !invariant.Thorough {
		c.idle++
		return
	}
	c.mu.Lock()
	entries := len(c.live) + e.posted.Len() + e.unexp.Len() + e.sends.used + e.reads.used
	c.mu.Unlock()
	if c.idle++; e.closed || !invariant.Thorough && entries > checkSmall && c.idle < max(checkSmall, entries/checkShare) {
		return
	}
	c.idle, c.moved = 0, false
	listCheck{e}.all()
}

// listCheck holds all lists of an engine against each other, and against the records of its
// operations.
type listCheck struct{ e *Engine }

func (c listCheck) all() {
	c.posted()
	c.unmatched()
	c.messages()
	c.sends()
	c.reads()
	c.large()
	c.peers()
	c.queues()
	e := c.e
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

// posted is V5: the posted-receive queue is exactly the posted and offloaded receives,
// in the order of posting. The records of live operations are an account of their own.
func (c listCheck) posted() {
	e := c.e
	last, listed := uint64(0), 0
	from := map[int]int{}
	for h, op := range e.posted.All() {
		checkEntry(op, "V5", "the posted-receive queue", opPosted, opOffloaded)
		invariant.Check(op.handle == h, "V5", "a receive is in the posted-receive queue under another handle: %s", op.note.where())
		invariant.Check(op.note.order > last, "V5", "a receive comes in the posted-receive queue behind one that was posted later: %s", op.note.where())
		last = op.note.order
		listed++
		from[max(op.peer, AnySource)]++
	}
	invariant.Check(from[AnySource] == e.fromAny, "V5", "the posted-receive queue has %d receives from any rank, counted are %d", from[AnySource], e.fromAny)
	for _, p := range e.made {
		invariant.Check(from[p.rank] == p.from, "V5", "the posted-receive queue has %d receives from rank %d, counted are %d", from[p.rank], p.rank, p.from)
	}
	inv := &e.inv
	inv.mu.Lock()
	defer inv.mu.Unlock()
	for r := range inv.live {
		if !r.underWay() {
			continue
		}
		op := r.op
		if r.kind.receives() && (op.state == opPosted || op.state == opOffloaded) {
			listed--
		}
		invariant.Check(op.note == r, "pool", "an operation was posted with the memory of one that is under way: %s", r.where())
	}
	invariant.Check(listed == 0, "V5", "the posted-receive queue has %d receives too many (below 0: too few)", listed)
}

// unmatched is V7, and with it V18: no receive waits beside a message that it matches.
func (c listCheck) unmatched() {
	e := c.e
	for m := range e.unexp.All() {
		if op, _, ok := e.posted.Find(m.Tag); ok {
			invariant.Broken("V7", "a message from %d, tag %#x, waits beside its receive: %s", m.Src, m.Tag, op.note.where())
		}
	}
}

// messages checks the unexpected messages, and what their peers have charged for them.
func (c listCheck) messages() {
	e := c.e
	e.unexp.Check()
	charged := make([]uint64, len(e.peers))
	for m := range e.unexp.All() {
		charged[m.Src] += m.Cost()
		invariant.Check(!m.Rndv || e.peers[m.Src].lost == nil, "list", "rank %d is lost and has a request: tag %#x, %d bytes", m.Src, m.Tag, m.Len)
	}
	for m := range e.unexp.Out() {
		charged[m.Src] += m.Cost()
	}
	for name, m := range e.held {
		invariant.Check(!m.used && m.err == nil && m.eager == nil && m.read.request() == name && e.peers[name.src].lost == nil, "list",
			"a Message is found by the request %v and has it not", name)
	}
	var committed int64
	for _, p := range e.made {
		i := p.rank
		committed += p.in.Committed()
		p.in.Check(charged[i], p.lost != nil)
		p.checkFlow()
		invariant.Check(p.inspected || !p.foreign && !p.in.Probed(), "V18",
			"rank %d has messages that a probe has asked for, and nobody looks at them", i)
		invariant.Check(len(p.withdraws) == 0 || p.mayBeMatched(), "list", "rank %d has withdrawn a request that the device cannot have matched", i)
	}
	invariant.Check(committed == e.memory.Committed(), "credit", "%d bytes are committed to peers, %d are counted", committed, e.memory.Committed())
}

// checkFlow checks what is held up, both ways.
func (p *peer) checkFlow() {
	if p.lost != nil {
		return
	}
	p.out.Check(p.rank)
	for h, op := range p.e.posted.All() {
		invariant.Check(!op.accepts(p.rank) || p.in.Named(h), "V18", "rank %d is held up and was not told of a receive that waits: %s", p.rank, op.note.where())
	}
}

// sends is V16: what a peer may read is registered.
func (c listCheck) sends() {
	e := c.e
	checkSlots("sends", &e.sends, func(op *Op) {
		checkEntry(op, "V16", "the table of rendezvous sends", opRequested, opWithdrawing)
		invariant.Check(op.room() == 0 || op.region != nil || op.state == opWithdrawing, "V16", "a buffer that a peer may read is not registered: %s", op.note.where())
		invariant.Check(e.peers[op.peer].lost == nil, "list", "a send to a rank that is lost has not ended: %s", op.note.where())
	})
}

// reads checks the receives that read: each has a read under way or waits for room, or
// it would wait for ever.
func (c listCheck) reads() {
	e := c.e
	reading := 0
	checkSlots("reads", &e.reads.slots, func(op *Op) {
		checkEntry(op, "V18", "the table of reads", opReading, opAbandoned)
		r := &op.read
		invariant.Check(r.active > 0 || op.linked, "V18", "a receive neither reads nor waits for room: %s", op.note.where())
		invariant.Check(r.posted <= r.want && (op.state == opAbandoned || r.want <= uint64(op.room())), "V4", "%d of %d bytes are read: %s", r.posted, r.want, op.note.where())
		if op.state == opReading {
			reading++
			invariant.Check(e.reads.by == nil || e.reads.by[r.request()] == op, "list", "a receive is not found by what it reads: %s", op.note.where())
		}
	})
	invariant.Check(e.reads.by == nil || len(e.reads.by) == reading, "list", "%d receives read, %d are found by what they read", reading, len(e.reads.by))
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

// large checks the count of large operations, which may have slots that are in use for
// nobody any more.
func (c listCheck) large() {
	e := c.e
	used, large := 0, 0
	for _, t := range e.tables() {
		used += t.used
		for i := range t.entries {
			if en := &t.entries[i]; en.op != nil && en.bulky {
				large++
			}
		}
	}
	invariant.Check(large <= e.wait.Large && e.wait.Large <= used, "slot", "%d large operations are counted, there are %d", e.wait.Large, large)
}

// peers checks what waits for room: nothing of it can be forgotten.
func (c listCheck) peers() {
	e := c.e
	var queued int64
	posts := 0
	for _, p := range e.made {
		i := p.rank
		for op := range p.out.Sends() {
			checkEntry(op, "list", "a queue of sends", opQueued)
			invariant.Check(op.peer == i, "list", "a send is in the queue of rank %d: %s", i, op.note.where())
			invariant.Check(p.out.Waits(uint64(op.handle), op), "list", "a send that waits has the number of another: %s", op.note.where())
			queued += op.weight()
		}
		for op := p.readq.head; op != nil; op = op.next {
			checkEntry(op, "list", "a queue of reads", opReading)
			invariant.Check(op.linked && op.read.src == i, "list", "a receive is in the queue of rank %d: %s", i, op.note.where())
		}
		for op := p.revoked.head; op != nil; op = op.next {
			checkEntry(op, "list", "a list of messages that were taken back", opReading)
			invariant.Check(op.linked && op.read.src == i && op.revoked(), "list", "a receive waits for the reason of nothing: %s", op.note.where())
		}
		_, held := p.out.Due()
		waits := p.out.May() || held || p.in.Waits(e.off.settled()) || !p.readq.empty() || len(p.fins)+len(p.ctrls) != 0
		invariant.Check(p.dirty || !waits, "V18", "what waits for room at rank %d is not posted again", i)
		invariant.Check((p.dirty && p.met) == slices.Contains(e.dirty, i), "V18", "rank %d: dirty is %v, met is %v", i, p.dirty, p.met)
		posts += len(p.fins) + len(p.ctrls)
		invariant.Check(p.lost == nil || p.out.Empty(), "list", "a send waits for room at rank %d, which is lost", i)
	}
	invariant.Check(posts == e.backlog.posts, "list", "%d FINs and control messages that wait are counted, there are %d", e.backlog.posts, posts)
	invariant.Check(queued == e.backlog.bytes, "list", "%d bytes of queued sends are counted, there are %d", e.backlog.bytes, queued)
	for _, op := range e.flushers {
		checkEntry(op, "list", "the list of flushes", opFlushing)
	}
	for _, op := range e.backlog.rooms {
		checkEntry(op, "list", "the list of calls of Room", opRoom)
	}
}

// queues checks the queues where goroutines wait: none sleeps beside an outcome.
func (c listCheck) queues() {
	e := c.e
	for q := e.queues.waiting.head; q != nil; q = q.next {
		invariant.Check(q.calls.head != nil, "queue", "a queue without a waiter is listed as one where some wait")
		for c := q.calls.head; c != nil; c = c.next {
			invariant.Check(c.q == q && !c.Ended(), "queue", "a goroutine that was woken is listed as one that waits at a queue")
		}
		invariant.Check(q.ready.head == nil && !q.closed || q.woken, "queue", "goroutines sleep at a queue that has an outcome for them, or is closed")
		n := int64(0)
		for en := q.ready.head; en != nil; en = en.next {
			n++
		}
		invariant.Check(n == q.count.Load(), "queue", "a queue has %d outcomes, %d are counted", n, q.count.Load())
		for en := q.pending.head; en != nil; en = en.next {
			invariant.Check(en.q == q && en.watch.Linked() && en.op.note.underWay() && en.op.note.q == q, "queue",
				"a queue will not be told the end of %s", en.op.note.where())
		}
	}
}

// checkLost follows the loss of p. What its transport reports later of messages that were
// matched before may wait again.
func (p *peer) checkLost() {
	invariant.Check(p.out.Empty(), "list", "a send waits for room at rank %d, which is lost", p.rank)
	invariant.Check(p.readq.empty() && p.revoked.empty(), "list", "a receive waits for rank %d, which is lost", p.rank)
}
