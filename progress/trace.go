package progress

import (
	"errors"
	"math/bits"
	"slices"
	"time"

	"github.com/tagmatch/tagmatch/internal/trace"
	"github.com/tagmatch/tagmatch/progress/internal/unexpected"
	"github.com/tagmatch/tagmatch/progress/internal/wait"
	"github.com/tagmatch/tagmatch/transport"
)

// ErrTracing is the error of StartTrace while the engine is traced.
var ErrTracing = errors.New("it is traced already")

// recording is a trace that is being made: a ring of records, written where the engine's lock is
// held anyway. A record costs a look at the clock, unless it is of a poll, whose records share one.
type recording struct {
	ring []trace.Record // its length is a power of two
	n    uint64         // records so far
	from time.Time

	polling bool  // the transport's Poll is running
	now     int64 // what the clock has shown in that; 0: nobody has looked
	shared  int   // records that now may still serve

	// owed is, by rank, how many requests the device has matched that were not charged yet, while
	// messages that came later are.
	owed []int
}

// mostShared is how many records of a poll share a look at the clock.
const mostShared = 16

// tracedTransport has the records of a poll share a look at the clock.
type tracedTransport struct {
	transport.Transport
	t *recording
}

func (x *tracedTransport) Poll() (int, error) {
	x.t.polling, x.t.now = true, 0
	n, err := x.Transport.Poll()
	x.t.polling = false
	return n, err
}

// StartTrace begins to record what happens; of so many records at least, and at most trace.Most,
// the newest are kept. It is ErrTracing where that was done before and StopTrace was not called.
func (e *Engine) StartTrace(records int) error {
	records = min(max(records, 1), trace.Most)
	t := &recording{ring: make([]trace.Record, 1<<bits.Len(uint(records-1))), owed: make([]int, e.cfg.Size)}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.trace != nil {
		return ErrTracing
	}
	for _, s := range e.off.slots.entries {
		if s.op != nil && s.op.state == opMatched {
			t.owe(&s.op.read, 1)
		}
	}
	t.from = time.Now()
	e.trace, e.tr = t, &tracedTransport{e.tr, t}
	return nil
}

// StopTrace ends a recording and returns it; nil where there is none.
func (e *Engine) StopTrace() *trace.Trace {
	e.mu.Lock()
	t := e.trace
	if t == nil {
		e.mu.Unlock()
		return nil
	}
	e.trace, e.tr = nil, e.tr.(*tracedTransport).Transport
	e.mu.Unlock()
	size := uint64(len(t.ring))
	if t.n <= size {
		return &trace.Trace{Start: t.from, Records: t.ring[:t.n]}
	}
	oldest := t.n % size
	return &trace.Trace{Start: t.from, Records: slices.Concat(t.ring[oldest:], t.ring[:oldest]), Lost: t.n - size}
}

// clock is the time of a record.
func (t *recording) clock() int64 {
	if !t.polling {
		return int64(time.Since(t.from))
	}
	if t.now == 0 || t.shared == 0 {
		t.now, t.shared = int64(time.Since(t.from)), mostShared
	}
	t.shared--
	return t.now
}

// add makes the next record.
func (t *recording) add(kind trace.Kind, op uint64) *trace.Record {
	r := &t.ring[t.n&uint64(len(t.ring)-1)]
	t.n++
	*r = trace.Record{At: t.clock(), Kind: kind, Op: op}
	return r
}

// about makes the next record, of a message.
func (t *recording) about(kind trace.Kind, op uint64, peer int, number, tag, bytes uint64) *trace.Record {
	r := t.add(kind, op)
	r.Peer, r.Number, r.Tag, r.Bytes = int32(peer), number, tag, bytes
	return r
}

// sent follows messages that were charged last, of an operation or of none.
func (t *recording) sent(kind trace.Kind, p *peer, op, tag uint64, bytes int) {
	t.about(kind, op, p.rank, p.out.Charged(), tag, uint64(bytes))
}

func (t *recording) queued(op *Op) {
	t.about(trace.Queued, op.name(), op.peer, 0, op.tag, uint64(op.room()))
}

func (t *recording) posted(op *Op, call bool) {
	r := t.about(trace.Posted, op.name(), op.peer, 0, op.tag, uint64(op.room()))
	r.Call = call
}

// number is that of the message of p which has come last.
func (t *recording) number(p *peer) uint64 {
	charged, _, _ := p.in.Usage()
	return charged + uint64(t.owed[p.rank])*unexpected.RecordCost
}

// came follows a message that no receive has got yet.
func (t *recording) came(kind trace.Kind, p *peer, seq, tag, bytes uint64) {
	r := t.about(kind, 0, p.rank, t.number(p), tag, bytes)
	r.Seq = seq
}

func (t *recording) taken(m *unexpected.Message) { t.add(trace.Taken, 0).Seq = m.Seq }

// matchedBy follows that the device has matched a receive. An eager message is charged, and its
// receive ends, before anything else of that peer comes.
func (t *recording) matchedBy(op *Op, p *peer) {
	if op.read.appCtx&rndvName == 0 {
		return
	}
	t.owe(&op.read, 1)
	r := t.about(trace.Matched, op.name(), p.rank, t.number(p), op.tag, 0)
	r.Seq, r.Device = op.read.seq, true
}

// owe counts a request that the device has matched, or, where n is -1, one that is charged next.
func (t *recording) owe(r *readState, n int) {
	if r.appCtx&rndvName != 0 && uint(r.src) < uint(len(t.owed)) {
		t.owed[r.src] += n
	}
}

func (t *recording) reading(op *Op) { t.add(trace.Reading, op.name()).Seq = op.read.seq }

// ended follows the end of an operation that was in a state.
func (t *recording) ended(op *Op, was opState, st Status, err error) {
	switch was {
	case opRequested, opWithdrawing:
		t.add(trace.SendEnded, op.name()).Failed = err != nil
	case opQueued:
		if err != nil {
			t.add(trace.SendEnded, op.name()).Failed = true
		}
	case opPosted, opOffloaded, opCancelling, opMatched, opReading:
		t.endedReceive(op, was, st, err)
	}
}

func (t *recording) endedReceive(op *Op, was opState, st Status, err error) {
	_, short := err.(*truncation)
	eager := was == opPosted || was == opOffloaded || was == opMatched && op.read.appCtx&rndvName == 0
	if eager && (err == nil || short) && !op.kind.probe() {
		r := t.about(trace.Received, op.name(), st.Source, t.number(op.e.peers[st.Source]), st.Tag, uint64(st.Len))
		r.Device = was == opMatched
		return
	}
	r := t.add(trace.Ended, op.name())
	r.Bytes, r.Failed = uint64(st.Len), err != nil && !short
}

// call follows that a goroutine waits, or has waited.
func (t *recording) call(kind trace.Kind, op wait.Operation) { t.add(kind, nameOf(op)) }

// parksLocked follows that a goroutine goes to sleep, or goes on: one that waits for op, or, where
// that is nil, for the transport.
func (e *Engine) parksLocked(op wait.Operation, asleep bool) {
	t := e.trace
	switch {
	case t == nil:
	case op == nil && asleep:
		t.add(trace.Asleep, 0)
	case op == nil:
		t.add(trace.Awake, 0)
	case asleep:
		t.call(trace.Parked, op)
	default:
		t.call(trace.Woken, op)
	}
}
