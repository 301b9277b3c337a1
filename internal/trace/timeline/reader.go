package timeline

import (
	"slices"

	"github.com/tagmatch/tagmatch/internal/trace"
)

// reader goes through the records of one rank.
type reader struct {
	rank     *Rank
	offset   int64                 // from its clock to that of the Timeline
	now      int64                 // of the record
	outs     []*Message            // that this rank has sent
	arrivals map[int]*arrivals     // by sender
	begun    map[uint64]begun      // by Op, those of trace.Begun that are not received yet
	ops      map[uint64]*operation // that have not ended
	came     map[uint64]*Message   // by Seq, those that no receive has ended with
	waits    map[uint64][]*call    // by Op, those that have not ended
	asleep   int64                 // since when; 0: nobody is
	did      Activity
}

// arrivals is messages of one sender, in their order.
type arrivals struct {
	list []*Message
	// late has a place for each of list, and one more: what is to be added to the Number of that
	// message and of all behind it. So a cost that is told late takes two sums, however many have
	// come.
	late []uint64
}

// begun is a message of trace.Begun, with its place in arrivals.
type begun struct {
	*Message
	at int
}

// operation is a send or a receive.
type operation struct {
	begin   int64
	name    string // of its blocking call
	peer    int
	tag     uint64
	bytes   uint64
	about   bool // peer, tag and bytes are known
	message *Message
	device  int64 // since when the device reads
	reads   int64 // since when software does
}

// call is a call that waits. It ends with what it waits for, or when it is awake after that.
type call struct {
	Slice
	asleep int64 // since when; 0: it is not
	over   bool  // its operation has ended
}

func newReader(rank *Rank, offset int64) *reader {
	return &reader{rank: rank, offset: offset, arrivals: map[int]*arrivals{}, begun: map[uint64]begun{},
		ops: map[uint64]*operation{}, came: map[uint64]*Message{}, waits: map[uint64][]*call{}}
}

func (r *reader) all() Activity {
	for i := range r.rank.Events {
		e := &r.rank.Events[i]
		at := min(max(e.At, 0), longest)
		r.now = max(at+r.offset, r.now+1) // those that share a look at the clock are told apart
		r.read(e)
	}
	r.finish()
	for _, list := range []*[]Slice{&r.did.Calls, &r.did.Reads, &r.did.DeviceReads} {
		slices.SortStableFunc(*list, func(a, b Slice) int { return int(min(max(a.Begin-b.Begin, -1), 1)) })
	}
	return r.did
}

func (r *reader) read(e *trace.Record) {
	switch e.Kind {
	case trace.Queued, trace.Sent, trace.Requested, trace.SendEnded:
		r.readSend(e)
	case trace.Posted, trace.Reading, trace.Received, trace.Ended:
		r.readReceive(e)
	case trace.Arrived, trace.Asked, trace.Taken, trace.Matched, trace.Begun:
		r.readMessage(e)
	default:
		r.readCall(e)
	}
}

func (r *reader) readSend(e *trace.Record) {
	var op *operation
	if e.Op != 0 || e.Kind != trace.Sent { // those that do not name it are damaged
		op = r.operation(e, "Send")
	}
	switch e.Kind {
	case trace.Queued:
	case trace.Sent:
		m := r.sent(e, op, Eager)
		if m.Done = r.now; op != nil {
			r.end(e.Op, op)
		}
	case trace.Requested:
		op.message = r.sent(e, op, Rendezvous)
	case trace.SendEnded:
		if m := op.message; m != nil {
			m.Done, m.Failed = r.now, e.Failed
		}
		r.end(e.Op, op)
	}
}

func (r *reader) sent(e *trace.Record, op *operation, protocol string) *Message {
	m := &Message{From: r.rank.Rank, To: int(e.Peer), Number: e.Number, Protocol: protocol, Out: r.told(e), Posted: r.now, Sent: r.now}
	if op != nil {
		m.Posted = op.begin
	}
	r.outs = append(r.outs, m)
	return m
}

func (r *reader) readReceive(e *trace.Record) {
	op := r.operation(e, "Recv")
	switch e.Kind {
	case trace.Posted:
		if op.message, op.device, op.reads = nil, 0, 0; e.Call {
			r.begin(e.Op, op.slice(op.name, op.begin, 0))
		}
	case trace.Reading:
		r.endReads(op)
		op.reads = r.now
		if m := r.came[e.Seq]; m != nil {
			op.message = m
			m.Matched, m.Reads, m.Received = r.now, r.now, 0
		}
	case trace.Received:
		m := r.arrived(e, Eager)
		m.Received = r.now
		if m.Matched == 0 {
			m.Matched = r.now
		}
		r.end(e.Op, op)
	case trace.Ended:
		if m := op.message; m != nil && !e.Failed {
			m.Received = r.now
			m.In.Bytes = e.Bytes
		}
		r.end(e.Op, op)
	}
}

func (r *reader) readMessage(e *trace.Record) {
	switch e.Kind {
	case trace.Arrived:
		r.came[e.Seq] = r.arrived(e, Eager)
	case trace.Asked:
		r.came[e.Seq] = r.arrived(e, Rendezvous)
	case trace.Taken:
		if m := r.came[e.Seq]; m != nil {
			m.Matched, m.Received = r.now, r.now
			delete(r.came, e.Seq)
		}
	case trace.Begun:
		m := r.added(e)
		m.Matched, m.Device = r.now, true
		r.begun[e.Op] = begun{m, len(r.arrivals[m.From].list) - 1}
	case trace.Matched:
		m := r.arrived(e, Rendezvous)
		m.Matched, m.Reads, m.Device = r.now, r.now, true
		r.came[e.Seq] = m // software may get it
		op := r.operation(e, "Recv")
		op.message, op.device = m, r.now
	}
}

// arrived is a message that has come now, or of which more is known now.
func (r *reader) arrived(e *trace.Record, protocol string) (m *Message) {
	if e.Device && e.Kind != trace.Matched {
		m = r.charged(e)
	} else {
		m = r.added(e)
	}
	m.Protocol, m.In = protocol, r.told(e)
	return m
}

func (r *reader) added(e *trace.Record) *Message {
	m := &Message{From: int(e.Peer), To: r.rank.Rank, Number: e.Number, Arrived: r.now}
	a := r.arrivals[m.From]
	if a == nil {
		a = &arrivals{late: make([]uint64, 1)}
		r.arrivals[m.From] = a
	}
	a.list, a.late = append(a.list, m), append(a.late, 0)
	return m
}

// charged is a message of trace.Begun, whose cost is known now. Where the device had matched it
// before the first record it came before all others, and has no Number.
func (r *reader) charged(e *trace.Record) *Message {
	b, from := r.begun[e.Op], 0
	if b.Message == nil || b.From != int(e.Peer) { // the latter is damaged
		b.Message = &Message{From: int(e.Peer), To: r.rank.Rank}
	} else {
		from = b.at
		delete(r.begun, e.Op)
	}
	if a := r.arrivals[int(e.Peer)]; a != nil {
		a.late[from] += e.Number
		a.late[len(a.list)] -= e.Number // those that come from now on know of it
	}
	return b.Message
}

// ins are the messages that have come, but for those whose Number is not known as a message before
// them was not received yet.
func (r *reader) ins() (all []*Message) {
	for _, a := range r.arrivals {
		late := uint64(0)
		for i, m := range a.list {
			if m.Protocol == "" {
				break
			}
			late += a.late[i]
			m.Number += late
			all = append(all, m)
		}
	}
	return all
}

func (r *reader) told(e *trace.Record) End {
	end := End{Known: true, Tag: e.Tag, Bytes: e.Bytes}
	if int(e.Comm) < len(r.rank.Comms) {
		end.Comm = r.rank.Comms[e.Comm]
	}
	return end
}

// operation finds what a record is about; it may have begun before the recording.
func (r *reader) operation(e *trace.Record, name string) *operation {
	op := r.ops[e.Op]
	if op == nil {
		op = &operation{begin: r.now, name: name, peer: -1}
		r.ops[e.Op] = op
	}
	if e.Kind == trace.Posted || e.Kind == trace.Queued || e.Kind == trace.Requested {
		op.peer, op.tag, op.bytes, op.about = max(int(e.Peer), -1), e.Tag, e.Bytes, true
	}
	return op
}

// end ends an operation, and the calls that wait for it: they go on as soon as they are awake.
func (r *reader) end(name uint64, op *operation) {
	r.endReads(op)
	r.endCalls(name, func(c *call) bool {
		c.over = true
		return c.asleep == 0
	})
	delete(r.ops, name)
}

func (r *reader) endReads(op *operation) {
	if op.device != 0 {
		r.did.DeviceReads = append(r.did.DeviceReads, op.slice("device reads", op.device, r.now))
	}
	if op.reads != 0 {
		r.did.Reads = append(r.did.Reads, op.slice("read", op.reads, r.now))
	}
	op.device, op.reads = 0, 0
}

func (op *operation) slice(name string, begin, end int64) Slice {
	s := Slice{Name: name, Begin: begin, End: end, Peer: op.peer, Tag: op.tag, Bytes: op.bytes, About: op.about}
	if m := op.message; m != nil && m.In.Known {
		s.Peer, s.Tag, s.Bytes, s.About = m.From, m.In.Tag, m.In.Bytes, true
	}
	return s
}

// finish ends what goes on at the end of the recording.
func (r *reader) finish() {
	for _, op := range r.ops {
		r.endReads(op)
	}
	for name := range r.waits {
		r.endCalls(name, func(c *call) bool {
			r.wake(c)
			return true
		})
	}
	if r.asleep != 0 {
		r.did.Sleeps = append(r.did.Sleeps, Slice{Name: "asleep", Begin: r.asleep, End: r.now, Peer: -1})
	}
}
