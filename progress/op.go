package progress

import (
	"sync/atomic"

	"github.com/tagmatch/tagmatch/matching"
	"github.com/tagmatch/tagmatch/progress/internal/wait"
	"github.com/tagmatch/tagmatch/transport"
)

// Status describes a message. Len is its length, larger than the buffer after ErrTruncated.
type Status struct {
	Source int
	Tag    uint64
	Len    int64
}

// Op is one operation. Ops are pooled and never returned to the runtime while the engine lives,
// so that a stale Request meets an Op of another generation, never foreign memory. In the pool they
// refer to nothing of the program: neither buffer nor error nor Message (checkFree). What an eager
// message needs comes first, in three cache lines; of a send that ends at once in two.
type Op struct {
	// Event reports whether the operation has ended; the goroutine whose Take of it succeeds has
	// consumed the outcome and owns the Op.
	wait.Event
	pool *opPool // constant: where it comes from, and goes back to; nil for Failed
	note note

	// All below is the engine's, under its lock, until the operation has ended; then the
	// consumer's.
	next     *Op     // in an opList, or in the pool
	err      error   // the outcome, with status, which stays in the pool, for Peek; while cancelling too, unless the device has matched it
	state    opState // see move
	sync     bool    // of a send, constant: never eager, so that completion means matched
	kind     opKind  // of a posted receive, constant: perhaps a probe
	canceled bool    // a receive that loses its message ends then
	back     bool    // of a posted receive: in the place of an earlier post, so not for the device
	linked   bool    // in a list: offload.waiting while posted, peer.readq or revoked while reading

	status Status
	buf    []byte  // the user's; nil once ended
	tag    uint64  // once a message has matched: its tag
	e      *Engine // constant; nil for Failed

	peer   int             // destination, or source; -1 any
	mask   uint64          // of a receive; of a send: how many operations had begun before it, see mark
	handle matching.Handle // posted, offloaded: in Engine.posted; queued: its number in peer.out

	message *Message // of a posted matched probe: what it fills in; nil once ended
	vec     *vector  // of several buffers, instead of buf

	prev   *Op              // in an opList
	kept   matching.Handle  // in offload.kept; 0: it is not there, see offload.since
	added  uint32           // offloaded, cancelling: offload.handled when the device got it
	slot   slot             // in Engine.sends, offload.slots or Engine.reads, as state says
	region transport.Region // from requested on, perhaps while queued: of a send with bytes
	read   readState        // matched, reading, abandoned: the message
}

// InFlight is how many bytes of op's message are on their way, where that is a large one.
func (op *Op) InFlight() uint64 {
	switch op.state {
	case opRequested, opMatched:
		return uint64(len(op.buf))
	case opReading:
		return op.read.want
	}
	return 0
}

// complete ends an operation, exactly once. The caller has unlinked it from everywhere.
func (op *Op) complete(st Status, err error) {
	e := op.e
	was := op.state
	op.move(opEnded)
	if was == opEnded {
		e.log.Error("operation completed twice", "tag", op.tag, "err", err)
		return
	}
	if err != nil {
		e.m.failed(err)
	}
	op.note.ended(st)
	if t := e.trace; t != nil {
		t.ended(op, was, st, err)
	}
	op.status = st
	op.buf = nil
	if err != nil || op.vec != nil {
		op.err, op.read.err = err, nil
	}
	if op.vec != nil {
		op.dropVector()
	}
	e.wait.End(&op.Event)
}

// opPool keeps Ops of one engine. The consumer of a Request returns its Op without the lock,
// through a stack that is only ever taken as a whole and so has no ABA problem.
type opPool struct {
	e        *Engine // constant
	born     bool    // constant: its Ops are born ended, see wait.Event.SetBorn
	made     int     // Ops that there are, in the pool or not
	first    []*Op   // of them the first firstMost: what the program forgets of others is its own
	free     *Op
	returned atomic.Pointer[Op]
}

// pools are those of an engine. What is out of ops once it has ended is a request that nobody has
// completed.
type pools struct {
	ops   opPool // of Requests
	sent  opPool // of Requests that have ended at once
	calls opPool // of calls that wait
}

// newOpLocked is an operation that is posted next. It is small enough to be inlined.
func (e *Engine) newOpLocked(kind noteKind, peer int, tag, mask uint64, buf []byte) *Op {
	e.mu.AssertHeld("the pool of operations")
	op := e.pools.of(kind).take()
	op.move(opNew)
	op.sync, op.kind, op.canceled, op.back = false, kindReceive, false, false
	op.peer, op.tag, op.mask, op.buf = peer, tag, mask, buf
	op.takeNote(kind)
	return op
}

// named reports whether the program has a Request.
func (k noteKind) named() bool { return k <= noteNull }

// of is where operations of a kind come from.
func (s *pools) of(kind noteKind) *opPool {
	if kind.named() {
		return &s.ops
	}
	return &s.calls
}

// newSendLocked is a send that is posted next.
func (e *Engine) newSendLocked(kind noteKind, dst int, tag uint64, buf []byte) *Op {
	op := e.newOpLocked(kind, dst, tag, e.entered[opNew], buf)
	op.kind = kindSend
	return op
}

// sentLocked is the operation of an Isend that has ended at once.
func (e *Engine) sentLocked(dst int, tag uint64, buf []byte) *Op {
	e.mu.AssertHeld("the pool of operations")
	op := e.pools.sent.take()
	op.born(noteSend, dst, tag, buf)
	op.status = e.sentStatus(tag, len(buf))
	return op
}

// take gives an Op out of the pool. It is small enough to be inlined.
func (p *opPool) take() *Op {
	op := p.free
	if op == nil {
		return p.refill()
	}
	p.free = op.next
	return op
}

// refill takes what consumers have returned, and gives out the first, or a fresh one.
func (p *opPool) refill() *Op {
	if op := p.returned.Swap(nil); op != nil {
		p.free = op.next
		return op
	}
	p.made++
	op := &Op{e: p.e, pool: p, state: opEnded}
	if p.born {
		op.SetBorn()
	}
	op.clear()
	if len(p.first) < firstMost {
		p.first = append(p.first, op)
	}
	return op
}

// consume takes the outcome of the ended operation of generation gen, if nobody has before. It
// needs no lock.
func (op *Op) consume(gen uint64) (Status, error, bool) {
	// The outcome must be read before the Op is returned, and only by the one whose Take
	// succeeds.
	if !op.Take(gen) {
		return Status{}, nil, false
	}
	st, err := op.status, op.err
	n := op.note
	if op.pool == nil { // of Failed; Peek may be looking at its error
		refusals.Add(-1)
	} else {
		if err != nil {
			op.dropError()
		}
		op.poison()
		op.pool.put(op)
	}
	n.outcome(err)
	return st, err, true
}

// dropError has the Op of an outcome that was taken without the lock forget its error. Peek may be
// looking at it, with the lock.
func (op *Op) dropError() {
	op.e.mu.Lock()
	op.forget()
	op.e.mu.Unlock()
}

// vanish ends an Op that has no outcome.
func (op *Op) vanish() {
	op.move(opEnded)
	op.read.err = nil
	op.free()
}

// free gives an Op back to its pool, with the lock.
func (op *Op) free() {
	if op.err != nil {
		op.forget()
	}
	op.poison()
	op.next, op.pool.free = op.pool.free, op
}

// outside is how many of its Ops are not in the pool; false where there are more than most in it:
// they are not counted then.
func (p *opPool) outside(most int) (n int, ok bool) {
	n = p.made
	for range p.inside {
		n--
		if most--; most < 0 {
			return 0, false
		}
	}
	return n, true
}

// open is about how many requests have ended whose outcome nobody has taken, those that a Queue has
// to report among them: operations that are in no pool and have ended. underWay is how many have
// not. It is 0 where there is memory for more than most others, as there have been many then.
func (s *pools) open(underWay, most int) (n int) {
	ops, ok := s.ops.outside(most)
	calls, too := s.calls.outside(most)
	if ok && too {
		n = max(0, ops+calls-underWay)
	}
	if sent, ok := s.sent.outside(most); ok {
		n += sent
	}
	return n
}

// inside visits its Ops that are in the pool.
func (p *opPool) inside(visit func(*Op) bool) {
	for _, op := range [2]*Op{p.free, p.returned.Load()} { // what was returned nobody takes without the lock
		for ; op != nil; op = op.next {
			if !visit(op) {
				return
			}
		}
	}
}

func (p *opPool) put(op *Op) {
	for {
		head := p.returned.Load()
		op.next = head
		if p.returned.CompareAndSwap(head, op) {
			return
		}
	}
}

// opList is a queue of Ops that any of them can leave.
type opList struct{ head, tail *Op }

func (l *opList) empty() bool { return l.head == nil }

func (l *opList) push(op *Op) {
	op.prev, op.next = l.tail, nil
	if l.tail == nil {
		l.head = op
	} else {
		l.tail.next = op
	}
	l.tail = op
	op.linked = true
}

func (l *opList) remove(op *Op) {
	if op.prev == nil {
		l.head = op.next
	} else {
		op.prev.next = op.next
	}
	if op.next == nil {
		l.tail = op.prev
	} else {
		op.next.prev = op.prev
	}
	op.next, op.prev = nil, nil
	op.linked = false
}
