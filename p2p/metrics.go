package p2p

// Metrics are counters of what a World has done so far, and a few present values.
type Metrics struct {
	Device    string   // what carries the messages to the other ranks: "shm", "tcp", "shm+tcp" where it depends, "loop" inside a process
	Wires     []string // the same by rank; shared memory that turns out not to work is replaced before the first message
	Transport string

	Counters
	Offload Offload
}

// Counters are the part of Metrics that is about messages.
type Counters struct {
	EagerSent, EagerReceived uint64 // messages copied on their way
	RndvSent, RndvReceived   uint64 // messages read out of their sender's buffer
	Unexpected               uint64 // messages that came before their receive
	Truncated                uint64
	Canceled                 uint64
	Revoked                  uint64 // of them, sends whose receiver did not say whether it has the message
	Withdrawn                uint64 // receives that met ErrWithdrawn, those of Recv included
	Queued                   uint64 // sends that had to wait
	HeldUp                   uint64 // times that sends had to wait because their receiver's memory was used up, see Config.UnexpectedLimit
	WantsSent, WantsReceived uint64 // receives that were named to ranks whose sends wait so; receives that they named to this rank
	Released                 uint64 // messages that went to such a receiver all the same, because it waited for one of them
	PeersLost                uint64
	Parks                    uint64 // waits that polling did not end

	PostedNow       int   // receives that wait for a message
	UnexpectedNow   int   // messages that wait for a receive
	UnexpectedBytes int64 // memory that they take here
	UnexpectedPeak  int64 // the most there ever were
	QueuedBytes     int64 // memory that sends take which wait, see Config.SendLimit
	HeldNow         int   // ranks whose memory sends of this rank wait for

	UnexpectedBySize [6]uint64 // of Unexpected: messages up to 64 B, 1 KiB, 16 KiB, 256 KiB, 4 MiB, and longer ones
}

// Offload counts what became of receives where the device matches; all zero where it does not.
type Offload struct {
	Offloaded   uint64 // receives that the device got, promoted ones included
	Promoted    uint64 // of them, those that software kept at first
	Matched     uint64 // of them, those that the device matched
	KeptSmall   uint64 // receives kept in software because they are shorter than Config.OffloadMin,
	KeptOverlap uint64 // because an earlier one in software could take the same message,
	KeptPath    uint64 // because their message may come by another device, see Config.Device,
	KeptFull    uint64 // because the list was full,
	KeptOff     uint64 // because offloading did not pay, see Rests
	Rests       uint64 // times that offloading stopped for a while, because messages mostly came before the device was ready
	Dels        uint64 // receives asked back from the device, cancelled ones for example
	DelsLost    uint64 // of them, those that the device had matched before
	Drops       uint64 // receives taken out because a message that the device did not match found them
	Syncs       uint64 // counts of handled messages that the device was told for their own sake

	InDevice int // receives that the device has and has not matched
	Dormant  int // of them, those that it cannot match yet; an estimate
}

// Metrics returns the counters as they are now.
func (w *World) Metrics() Metrics {
	m, wires := w.eng.Metrics(), w.eng.Wires()
	return Metrics{w.deviceName(wires), wires, w.transportName(), Counters(m.Counters), Offload(m.Offload)}
}

// transportName is the transport that was named or, where none was, what was chosen.
func (w *World) transportName() string {
	if w.cfg.Transport == transportTMSRQ {
		return transportTMSRQ
	}
	return transportRC
}
