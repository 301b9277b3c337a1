package p2p

import "time"

// Metrics are counters of what a World has done so far, and a few present values.
type Metrics struct {
	Job       string   // its name in `tagmatch ps`, the same on all ranks
	Device    string   // the wires in use: "shm", "tcp", "shm+tcp", or "loop" inside a process
	Wires     []string // the wire by rank; may change once, before the first message
	Transport string   // in use: "rc" or "tmsrq"

	Counters
	Offload Offload
}

// Counters are the part of Metrics that is about messages: since Init, except where it says Now.
type Counters struct {
	EagerSent, EagerReceived uint64 // messages whose bytes came along: up to Config.EagerLimit
	RndvSent, RndvReceived   uint64 // rendezvous messages: read from the sender's buffer
	Unexpected               uint64 // messages that arrived before their receive was posted
	Truncated                uint64 // receives that ended with ErrTruncated
	Canceled                 uint64 // operations that were ended by Cancel or a context
	Queued                   uint64 // sends that were queued before they were sent
	HeldUp                   uint64 // times that sends to a rank ran out of its credit (HELD)
	WantsSent, WantsReceived uint64 // waiting receives told to senders out of credit (WANT)
	Released                 uint64 // messages sent without credit for a WantsReceived
	PeersLost                uint64 // ranks
	Parks                    uint64 // waits that slept, after polling in vain

	// Bytes of EagerSent, EagerReceived, RndvReceived, and of RndvSent once they are received:
	// whole messages, also where they were cut (Truncated).
	EagerSentBytes, EagerReceivedBytes uint64
	RndvSentBytes, RndvReceivedBytes   uint64

	// Waited is the time that goroutines have waited for messages in calls, all of them added up,
	// those that still do included. The first microseconds of a wait, which look at no clock, do
	// not count, nor do loops of calls that do not block, such as Test.
	Waited time.Duration

	PostedNow       int   // receives that wait for a message
	UnexpectedNow   int   // messages that wait for a receive
	UnexpectedBytes int64 // their memory here, see Config.UnexpectedLimit
	UnexpectedPeak  int64 // maximum of UnexpectedBytes so far
	QueuedBytes     int64 // memory of queued sends, see Config.SendLimit
	HeldNow         int   // ranks for whose credit sends of this rank wait
	OperationsNow   int   // under way, those of blocking calls too, and UnreportedNow

	// UnreportedNow is about how many requests have ended that no Wait, Test or Queue has reported;
	// 0 where the library keeps memory for more than 512 others, as there have been many before. It
	// grows where a program forgets its requests.
	UnreportedNow int

	OldestWait time.Duration // since the oldest wait began that goes on; 0: none does

	// UnexpectedBySize divides Unexpected by size: up to 64 B, 1 KiB, 16 KiB, 256 KiB, 4 MiB, and
	// longer messages.
	UnexpectedBySize [6]uint64
}

// Offload counts what became of receives where the device matches; all zero where it does not.
type Offload struct {
	Offloaded uint64 // receives added to the tag list, promoted ones included
	Promoted  uint64 // of Offloaded: kept in software at first
	Matched   uint64 // of Offloaded: matched by the device

	// Receives that are kept in software, by reason.
	KeptSmall   uint64 // shorter than Config.OffloadMin, or into several buffers
	KeptOverlap uint64 // an earlier receive in software matches some of the same messages
	KeptPath    uint64 // the message may arrive over another device than that which matches, see Config.Device
	KeptFull    uint64 // the tag list was full
	KeptOff     uint64 // offloading was suspended, see Rests

	Rests      uint64 // suspensions of offloading because most messages were unexpected in the device
	Dels       uint64 // receives deleted from the tag list (DEL), to be cancelled for example
	DelsLost   uint64 // of Dels: matched by the device before
	ForcedDels uint64 // receives that matched an unexpected message in software (forced DEL)
	Syncs      uint64 // standalone SYNC operations

	InDevice int // entries of the tag list
	Dormant  int // of InDevice: those that the device cannot match yet; an estimate
}

// Metrics returns the counters as they are now. What it returns is the caller's. Any goroutine may
// call it at any time: it holds up messages for some 20 us at a time.
func (w *World) Metrics() Metrics {
	m, wires := w.eng.Metrics(), w.eng.Wires()
	return Metrics{w.jobName(), w.deviceName(wires), wires, w.transport(), Counters(m.Counters), Offload(m.Offload)}
}

// Traffic is the bytes of messages that this rank has exchanged with another one, or with itself,
// counted as in Counters.
type Traffic struct {
	Rank                     int // of the World
	EagerSent, EagerReceived uint64
	RndvSent, RndvReceived   uint64
}

// Traffic lists the ranks with which bytes were exchanged, in ascending order. The slice is the
// caller's. Ranks that are lost stay in it.
func (w *World) Traffic() []Traffic {
	list := w.eng.Traffic()
	out := make([]Traffic, len(list))
	for i, t := range list {
		out[i] = Traffic(t)
	}
	return out
}
