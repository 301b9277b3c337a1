package progress

import (
	"errors"
	"time"

	"github.com/tagmatch/tagmatch/internal/trace"
	"github.com/tagmatch/tagmatch/progress/internal/unexpected"
	"github.com/tagmatch/tagmatch/progress/internal/wait"
	"github.com/tagmatch/tagmatch/transport"
)

// ErrTracing is the error of StartTrace while the engine is traced.
var ErrTracing = errors.New("it is traced already: wait until that has ended")

// recording is a trace that is being made: a ring of records, written where the engine's lock is
// held anyway. A record costs a look at the clock. Those of a poll share one, after them, and those
// of sends have one before them: so no message comes before it was sent.
type recording struct {
	ring trace.Ring
	from time.Time

	polling bool   // the transport's Poll is running
	due     uint64 // records, the last ones, that have no time yet; only while polling
	sending int64  // when the transport was given what was sent last

	// owed is, by rank, how many requests the device has matched that were not charged yet, while
	// messages that came later are.
	owed []int
}

// mostShared is how many records of a poll share a look at the clock.
const mostShared = 16

// tracedTransport is the transport of an engine that is traced.
type tracedTransport struct {
	transport.Transport
	t *recording
}

func (x *tracedTransport) Poll() (int, error) {
	x.t.polling = true
	n, err := x.Transport.Poll()
	if x.t.polling = false; x.t.due != 0 {
		x.t.clock()
	}
	return n, err
}

func (x *tracedTransport) SendEager(dst int, appCtx uint32, tag uint64, payload []byte) error {
	x.t.sending = x.t.clock()
	return x.Transport.SendEager(dst, appCtx, tag, payload)
}

func (x *tracedTransport) SendEagers(dst int, appCtx uint32, msgs []transport.Eager) int {
	x.t.sending = x.t.clock()
	return x.Transport.SendEagers(dst, appCtx, msgs)
}

func (x *tracedTransport) SendRndv(dst int, h *transport.RndvHdr) error {
	x.t.sending = x.t.clock()
	return x.Transport.SendRndv(dst, h)
}

// StartTrace begins to record what happens in a ring, which is the engine's until StopTrace has
// returned. Start is what the times of records count from. The error is ErrTracing where that was
// done before and StopTrace was not called.
func (e *Engine) StartTrace(ring trace.Ring) (start time.Time, err error) {
	t := &recording{ring: ring, owed: make([]int, e.cfg.Size)}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.trace != nil {
		return start, ErrTracing
	}
	for op := range e.off.slots.ops() {
		if op.state == opMatched {
			t.owe(&op.read, 1)
		}
	}
	t.from = time.Now()
	e.trace, e.tr = t, &tracedTransport{e.tr, t}
	return t.from, nil
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
	list, lost := t.ring.Newest()
	return &trace.Trace{Start: t.from, Records: list, Lost: lost}
}

// clock looks at the clock, and gives the time to the records that have none.
func (t *recording) clock() int64 {
	now := int64(time.Since(t.from))
	for ; t.due != 0; t.due-- {
		t.at(*t.ring.Count - t.due).At = now
	}
	return now
}

func (t *recording) at(i uint64) *trace.Record {
	return &t.ring.Records[i&uint64(len(t.ring.Records)-1)]
}

// add makes the next record.
func (t *recording) add(kind trace.Kind, op uint64) *trace.Record {
	if !t.polling {
		return t.addAt(t.clock(), kind, op)
	}
	if t.due == mostShared {
		t.clock()
	}
	t.due++
	return t.addAt(0, kind, op)
}

func (t *recording) addAt(now int64, kind trace.Kind, op uint64) *trace.Record {
	r := t.at(*t.ring.Count)
	*t.ring.Count++
	*r = trace.Record{At: now, Kind: kind, Op: op}
	return r
}

// about makes the next record, of a message.
func (t *recording) about(kind trace.Kind, op uint64, peer int, number, tag, bytes uint64) *trace.Record {
	return of(t.add(kind, op), peer, number, tag, bytes)
}

func of(r *trace.Record, peer int, number, tag, bytes uint64) *trace.Record {
	r.Peer, r.Number, r.Tag, r.Bytes = int32(peer), number, tag, bytes
	return r
}

// sent follows a message that was charged last, of an operation or of none.
func (t *recording) sent(kind trace.Kind, p *peer, op, tag uint64, bytes int) {
	of(t.addAt(t.sending, kind, op), p.rank, p.out.Charged(), tag, uint64(bytes))
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

// taken follows that an unexpected message was received, or dropped.
func (t *recording) taken(seq uint64) { t.add(trace.Taken, 0).Seq = seq }

// matchedBy follows that the device has matched a receive. Messages that come before it is charged
// were sent after it. What it costs may be known only then: see trace.Begun.
func (t *recording) matchedBy(op *Op, p *peer) {
	kind := trace.Begun // or it is one that the device leaves to software, and does not name
	if op.read.appCtx&rndvName != 0 {
		kind = trace.Matched
	}
	t.owe(&op.read, 1)
	r := of(t.addAt(t.clock(), kind, op.name()), p.rank, t.number(p), op.tag, 0)
	r.Seq, r.Device = op.read.seq, true
}

// left follows that the device leaves a request to software that it has matched. It may not have
// said before that it was one.
func (t *recording) left(op *Op, p *peer, h *transport.RndvHdr) {
	if op.read.appCtx&rndvName == 0 {
		r := t.about(trace.Asked, op.name(), p.rank, unexpected.RecordCost, op.tag, h.Len)
		r.Seq, r.Device = op.read.seq, true
	}
}

// owe counts a request that the device has matched, or, where n is -1, one that is charged next.
func (t *recording) owe(r *readState, n int) {
	if r.appCtx&rndvName != 0 && uint(r.src) < uint(len(t.owed)) {
		t.owed[r.src] += n
	}
}

// reading has a time of its own: a read may end before it was posted.
func (t *recording) reading(op *Op) { t.addAt(t.clock(), trace.Reading, op.name()).Seq = op.read.seq }

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
		if r.Device = was == opMatched; r.Device {
			r.Number = unexpected.EagerCost(int(st.Len))
		}
		return
	}
	r := t.add(trace.Ended, op.name())
	r.Bytes, r.Failed = uint64(st.Len), err != nil && !short
}

// call follows what a goroutine does that waits for op.
func (t *recording) call(kind trace.Kind, op wait.Operation) { t.add(kind, nameOf(op)) }

// returned follows that a goroutine does not wait any more. That a request has ended says it too.
func (t *recording) returned(op wait.Operation, err error) {
	if own, one := op.(*Op); !one || err != nil || own.pool == &own.e.pools.calls {
		t.call(trace.Returned, op)
	}
}

// parks records that a goroutine goes to sleep, or goes on: one that waits for op, or, where that
// is nil, for the transport.
func (w *waitEngine) parks(op wait.Operation, asleep bool, now time.Time) {
	if asleep {
		(*Engine)(w).markLocked(now)
	}
	t := w.trace
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
