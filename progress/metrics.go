package progress

import (
	"slices"
	"time"
)

// Metrics counts what an engine did, and holds a few present values.
type Metrics struct {
	Counters
	Offload OffloadMetrics

	Grants      uint64 // times that a peer was granted more credit
	Returned    uint64 // times that a receive lost its message: it went back, a RecvAlloc began again, or it was to end
	Stale       uint64 // answers of peers that named no send, late or repeated
	Sleeps      uint64 // waits for events in the transport
	RequestsNow int    // rendezvous sends that the peer has not read yet
	ReadsNow    int    // receives that read
}

// Counters are those of Metrics that users of package p2p see. It converts this structure and
// OffloadMetrics to its own, which have the same fields in the same order and document them.
type Counters struct {
	EagerSent, EagerReceived uint64 // messages
	RndvSent, RndvReceived   uint64 // messages
	Unexpected               uint64 // messages that came before their receive
	Truncated                uint64
	Canceled                 uint64
	Queued                   uint64 // sends that had to wait for room or credit
	HeldUp                   uint64 // times that sends to a peer were held up for credit
	WantsSent, WantsReceived uint64 // receives that were named to peers whose sends are held up; the same by peers
	Released                 uint64 // messages that went beyond credit because the receiver wanted one
	PeersLost                uint64
	Parks                    uint64 // waiters that slept

	EagerSentBytes, EagerReceivedBytes uint64        // of those messages
	RndvSentBytes, RndvReceivedBytes   uint64        // of those that have been read
	Waited                             time.Duration // by all goroutines, but for first polls

	PostedNow       int   // receives that wait for a message
	UnexpectedNow   int   // messages that wait for a receive
	UnexpectedBytes int64 // memory that they take, records included
	UnexpectedPeak  int64 // the most there ever were
	QueuedBytes     int64 // memory that sends take which wait for room or credit
	HeldNow         int   // peers that sends are held up to
	OperationsNow   int   // under way, and UnreportedNow
	UnreportedNow   int   // see pools.open
	OldestWait      time.Duration

	UnexpectedBySize [SizeClasses]uint64
}

// OffloadMetrics counts what became of receives where a device has a tag list; all zero where it
// has none.
type OffloadMetrics struct {
	Offloaded   uint64 // receives that the device got, promoted ones included
	Promoted    uint64 // of them, those that software kept at first
	Matched     uint64 // of them, those that the device matched
	KeptSmall   uint64 // receives kept in software because they are short, or into several buffers,
	KeptOverlap uint64 // because an earlier one in software overlaps them,
	KeptPath    uint64 // because their message may come by another device,
	KeptFull    uint64 // because the list was full,
	KeptOff     uint64 // because offloading did not pay, see Rests
	Rests       uint64 // times that the device was given up for a while, because messages mostly came before it was ready
	Dels        uint64 // receives that a DEL was posted for, cancelled ones for example
	DelsLost    uint64 // of them, those that the device had matched before
	ForcedDels  uint64 // receives taken out because a message that the device did not match found them
	Syncs       uint64 // counts of handled messages that were sent for their own sake

	InDevice int // receives that the device has and has not matched
	Dormant  int // of them, those that it cannot match yet; an estimate
}

// SizeClasses is how many classes of size Metrics tells apart: up to 64 B, 1 KiB, 16 KiB, 256 KiB,
// 4 MiB, and more.
const SizeClasses = 6

func sizeClass(n uint64) int {
	c := 0
	for limit := uint64(64); n > limit && c < SizeClasses-1; limit <<= 4 {
		c++
	}
	return c
}

// failed counts an operation that ends with an error.
func (m *Metrics) failed(err error) {
	switch err {
	case ErrCanceled, errRevoked:
		m.Canceled++
	}
}

// truncated counts a receive that got n bytes of a message of length total, and returns its error;
// nil where these are all.
func (m *Metrics) truncated(n int, total uint64) error {
	if uint64(n) < total {
		m.Truncated++
		return &truncation{total, uint64(n)}
	}
	return nil
}

// Metrics returns the counters as they are now.
func (e *Engine) Metrics() Metrics {
	var t Traffic
	e.eachTraffic(t.add)
	oldest := e.oldestWait(time.Now())
	e.mu.Lock()
	defer e.mu.Unlock()
	m := e.m
	m.Parks, m.Sleeps = e.wait.Counts()
	m.Queued, m.RndvSent = e.entered[opQueued], e.entered[opRequested]
	m.Offload = e.off.metrics(e.entered[opPosted], e.entered[opOffloaded])
	m.Offload.Matched, m.Offload.Dels = e.entered[opMatched], e.entered[opCancelling]
	m.PostedNow, m.UnexpectedNow = e.posted.Len(), e.unexp.Len()
	m.UnexpectedBytes, m.UnexpectedPeak = e.unexp.Memory()
	m.QueuedBytes = e.backlog.bytes
	m.RequestsNow, m.ReadsNow = e.sends.used, e.reads.used
	m.EagerSentBytes, m.EagerReceivedBytes = t.EagerSent, t.EagerReceived
	m.RndvSentBytes, m.RndvReceivedBytes = t.RndvSent, t.RndvReceived
	m.Waited, m.OldestWait = e.wait.Waited(time.Now()), oldest
	m.OperationsNow = e.entered.underWay()
	m.UnreportedNow = e.pools.open(m.OperationsNow, freeMost)
	m.OperationsNow += m.UnreportedNow
	return m
}

// Wires names what carries the messages to each rank, as the transport calls it: empty where it
// does not say. After Close it is what it was before.
func (e *Engine) Wires() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.wiresLocked()
}

func (e *Engine) wiresLocked() []string {
	if e.closed {
		return slices.Clone(e.wires)
	}
	names := make([]string, e.cfg.Size)
	for rank := range names {
		names[rank] = e.tr.Wire(rank)
	}
	return names
}
