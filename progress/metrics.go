package progress

// Metrics counts what an engine did, and holds a few present values.
type Metrics struct {
	EagerSent, EagerReceived uint64 // messages
	RndvSent, RndvReceived   uint64 // messages
	Unexpected               uint64 // messages that came before their receive
	Truncated                uint64
	Canceled                 uint64
	NoCredit                 uint64 // small messages that went as rendezvous requests for lack of credit
	Queued                   uint64 // sends that had to wait for room
	Grants                   uint64 // credit given back
	Stale                    uint64 // answers of peers that named no send, late or repeated
	PeersLost                uint64
	Parks                    uint64 // waiters that slept
	Sleeps                   uint64 // waits for events in the transport

	PostedNow       int   // receives that wait for a message
	UnexpectedNow   int   // messages that wait for a receive
	UnexpectedBytes int64 // their eager bytes
	UnexpectedPeak  int64 // the most there ever were
	QueuedBytes     int64 // of sends that wait for room
	RequestsNow     int   // rendezvous sends that the peer has not read yet
	ReadsNow        int   // receives that read
}

// Metrics returns the counters as they are now.
func (e *Engine) Metrics() Metrics {
	e.lock()
	defer e.mu.Unlock()
	m := e.m
	m.PostedNow, m.UnexpectedNow = e.posted.Len(), e.unexp.Len()
	m.QueuedBytes = e.queued
	m.RequestsNow, m.ReadsNow = e.sends.used, e.reads.used
	return m
}
