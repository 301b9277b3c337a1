package p2p

// Metrics are counters of what a World has done so far, and a few present values.
type Metrics struct {
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

	PostedNow       int   // receives that wait for a message
	UnexpectedNow   int   // messages that wait for a receive
	UnexpectedBytes int64 // their memory here, see Config.UnexpectedLimit
	UnexpectedPeak  int64 // maximum of UnexpectedBytes so far
	QueuedBytes     int64 // memory of queued sends, see Config.SendLimit
	HeldNow         int   // ranks for whose credit sends of this rank wait

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

// Metrics returns the counters as they are now. What it returns is the caller's.
func (w *World) Metrics() Metrics {
	m, wires := w.eng.Metrics(), w.eng.Wires()
	return Metrics{w.deviceName(wires), wires, w.transport(), Counters(m.Counters), Offload(m.Offload)}
}
