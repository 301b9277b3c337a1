package progress

import "github.com/tagmatch/tagmatch/internal/invariant"

// opState says where an operation is, and with that who has a pointer to it. Op.move alone changes
// it, as opMoves allows. A buffer is "registered" while the peer may read it, and the
// "transport's" while that or a device may write to it.
//
//	state        entered by     goes on to
//	new          newOpLocked    queued, requested, posted, reading, abandoned, flushing,
//	                            room, ended
//	             the poster has it, and posts it at once
//
//	a send:
//	queued       enqueue        requested, ended
//	             in its peer's queue, peer.out
//	requested    launch         withdrawing, ended
//	             in Engine.sends, registered: the peer was sent a rendezvous request
//	withdrawing  withdraw       ended
//	             as requested, and the peer was sent WITHDRAW; perhaps not registered any more
//
//	a receive:
//	posted       post           offloaded, reading, ended
//	             in Engine.posted, and in offload.kept, sooner or later, if there is a device
//	offloaded    offload.add    cancelling, matched, reading, ended
//	             in Engine.posted and offload.slots, the transport's. One that an unexpected
//	             message finds goes on at once: it is dormant in the device, which
//	             offload.count tells
//	cancelling   del            matched, ended
//	             in offload.slots, the transport's: a signalled DEL is posted; then it ends with
//	             err
//	matched      sink.Matched   posted, reading, ended
//	             in offload.slots, the transport's: the device has matched it and not finished
//	reading      startRead      posted, reading, ended
//	             in Engine.reads, the transport's; in peer.readq too while a read waits for room,
//	             in peer.revoked once the message was deregistered
//	abandoned    abandon        ended
//	             in Engine.reads for a receive that ended or went back with reads under way
//
//	a call:
//	flushing     Flush          ended
//	             in Engine.flushers
//	room         Room           ended
//	             in backlog.rooms
//
//	ended        complete, vanish new
//	             the consumer has it, and then the pool
type opState uint8

const (
	opNew opState = iota
	opQueued
	opRequested
	opWithdrawing
	opPosted
	opOffloaded
	opCancelling
	opMatched
	opReading
	opAbandoned
	opFlushing
	opRoom
	opEnded
	opStates
)

var opStateNames = [opStates]string{"new", "queued", "requested", "withdrawing", "posted",
	"offloaded", "cancelling", "matched", "reading", "abandoned", "flushing", "waiting for room", "ended"}

// opMoves are the states that may follow each.
var opMoves = [opStates][]opState{
	opNew:         {opQueued, opRequested, opPosted, opReading, opAbandoned, opFlushing, opRoom, opEnded},
	opQueued:      {opRequested, opEnded},
	opRequested:   {opWithdrawing, opEnded},
	opWithdrawing: {opEnded},
	opPosted:      {opOffloaded, opReading, opEnded},
	opOffloaded:   {opCancelling, opMatched, opReading, opEnded},
	opCancelling:  {opMatched, opEnded},
	opMatched:     {opPosted, opReading, opEnded},
	opReading:     {opPosted, opReading, opEnded}, // of another message, see goBack
	opAbandoned:   {opEnded},
	opFlushing:    {opEnded},
	opRoom:        {opEnded},
	opEnded:       {opNew},
}

// stateCounts is how many operations came to each state.
type stateCounts [opStates]uint64

// underWay is how many operations have begun and not ended, of calls that wait too.
func (c *stateCounts) underWay() int { return int(c[opNew] - c[opEnded]) }

// moves is how often an operation came to another state.
func (c *stateCounts) moves() (n uint64) {
	for _, entered := range c {
		n += entered
	}
	return n
}

// move takes an operation to another state. What the state says of fields of the Op itself
// holds before.
func (op *Op) move(to opState) {
	if invariant.Enabled {
		op.checkMove(to, opMoves[op.state])
	}
	op.state = to
	op.e.entered[to]++
}
