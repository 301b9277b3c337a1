// Package trace has what is recorded of a rank: fixed-size records of what happens to messages and
// to calls. The engine writes them, a rank's door hands them out, and package timeline puts those
// of all ranks together.
package trace

import (
	"encoding/binary"
	"fmt"
	"time"
)

// Kind is what a Record tells.
type Kind uint8

const (
	// Of a sender. Of an eager message that is sent at once there is one record.
	Queued    Kind = iota + 1 // a send waits in its peer's queue: Op, Peer, Tag, Bytes
	Sent                      // an eager message was given to the transport: Number, Peer, Tag, Bytes; Op if it had one
	Requested                 // so was the request of a rendezvous: Op, Number, Peer, Tag, Bytes
	SendEnded                 // Op; Failed

	// Of a receiver.
	Posted   // a receive waits: Op, Peer (below 0: any), Tag, Bytes of its buffer; Call
	Arrived  // an eager message without a receive: Number, Seq, Peer, Tag, Bytes
	Asked    // the request of a rendezvous: Number, Seq, Peer, Tag, Bytes; of Begun: Op, Device
	Received // an eager message that has found its receive, which has ended: Op, Number, Peer, Tag, Bytes; of Begun: Device
	Begun    // the device has matched a message, of which Received or Asked tells more: Op, Number, Peer, Tag
	Taken    // a message of Arrived was received, or one of Asked dropped: Seq
	Matched  // the device has matched a request, and reads: Op, Number, Seq, Peer, Tag
	Reading  // a receive reads the message of a request: Op, Seq; of Matched: the device leaves it to software
	Ended    // a receive has ended otherwise: Op, Bytes of the message; Failed

	// Of goroutines.
	Call     // a blocking call waits for Op, which it has made
	Wait     // a call waits for Op, or for several, for which Op stands then
	Returned // that has ended, where the end of Op does not say so
	Parked   // who waits for Op goes to sleep
	Woken    // and goes on
	Asleep   // somebody sleeps until the transport has something
	Awake    // and goes on

	Kinds // is none
)

// Record is one thing that has happened. Which fields are set the Kind says.
type Record struct {
	At int64 // ns since Trace.Start; not before that of the record before it

	Op  uint64 // names an operation until it has ended
	Seq uint64 // names a message at its receiver

	// Number names a message among those of its sender to its receiver, at both ends: it is the
	// credit that all of them have cost, up to and with this one. What a message of Begun costs is
	// the Number of its Received or Asked; until that comes it is missing in the Numbers of Begun
	// and of later messages of the same rank.
	Number uint64

	Tag   uint64
	Bytes uint64
	Peer  int32
	Comm  uint16 // index into Answer.Comms; only where that was made
	Kind  Kind

	Failed bool
	Call   bool // of a blocking call
	Device bool // the device has matched it
}

// Trace is what was recorded of an engine.
type Trace struct {
	Start   time.Time // with the clock that the times count by
	Records []Record  // the newest, in order
	Lost    uint64    // how many older ones there was no room for
}

// Longest is how long a trace may take.
const Longest = time.Hour

// Size is that of a record in bytes, in memory; encoded it has fewer.
const (
	Size    = 64
	encoded = 56
)

// Append appends the encoding of r.
func (r *Record) Append(b []byte) []byte {
	for _, v := range [...]uint64{uint64(r.At), r.Op, r.Seq, r.Number, r.Tag, r.Bytes} {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	b = binary.LittleEndian.AppendUint32(b, uint32(r.Peer))
	b = binary.LittleEndian.AppendUint16(b, r.Comm)
	return append(b, byte(r.Kind), flag(r.Failed, 1)|flag(r.Call, 2)|flag(r.Device, 4))
}

func flag(set bool, bit byte) byte {
	if set {
		return bit
	}
	return 0
}

// Decode reads records that Append has made one after the other.
func Decode(b []byte) (list []Record, err error) {
	if len(b)%encoded != 0 {
		return nil, fmt.Errorf("records of a trace: %d bytes are not a multiple of %d", len(b), encoded)
	}
	list = make([]Record, len(b)/encoded)
	for i := range list {
		r, b := &list[i], b[i*encoded:]
		var at uint64
		for j, v := range [...]*uint64{&at, &r.Op, &r.Seq, &r.Number, &r.Tag, &r.Bytes} {
			*v = binary.LittleEndian.Uint64(b[8*j:])
		}
		r.At, r.Peer, r.Comm = int64(at), int32(binary.LittleEndian.Uint32(b[48:])), binary.LittleEndian.Uint16(b[52:])
		r.Kind, r.Failed, r.Call, r.Device = Kind(b[54]), b[55]&1 != 0, b[55]&2 != 0, b[55]&4 != 0
		if r.Kind == 0 || r.Kind >= Kinds {
			return nil, fmt.Errorf("records of a trace: no record is of kind %d", r.Kind)
		}
	}
	return list, nil
}
