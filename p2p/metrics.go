package p2p

import "github.com/tagmatch/tagmatch/verbs/soft"

// Metrics are counters of what a World has done so far, and a few present values.
type Metrics struct {
	Device    string // what carries the messages: "shm", "tcp", "shm+tcp" where ranks are on several hosts, "loop" inside a process
	Transport string

	EagerSent, EagerReceived uint64 // messages copied on their way
	RndvSent, RndvReceived   uint64 // messages read out of their sender's buffer
	Unexpected               uint64 // messages that came before their receive
	Truncated                uint64
	Canceled                 uint64
	NoCredit                 uint64 // small messages that had to be read out of their sender's buffer, see Config.UnexpectedLimit
	Queued                   uint64 // sends that had to wait for room
	PeersLost                uint64
	Parks                    uint64 // waits that polling did not end

	PostedNow       int   // receives that wait for a message
	UnexpectedNow   int   // messages that wait for a receive
	UnexpectedBytes int64 // of them, buffered here
	UnexpectedPeak  int64 // the most there ever were
	QueuedBytes     int64 // of sends that wait for room, see Config.SendLimit
}

// Metrics returns the counters as they are now.
func (w *World) Metrics() Metrics {
	m := w.eng.Metrics()
	return Metrics{
		Device: w.deviceName(), Transport: transportRC,
		EagerSent: m.EagerSent, EagerReceived: m.EagerReceived, RndvSent: m.RndvSent, RndvReceived: m.RndvReceived,
		Unexpected: m.Unexpected, Truncated: m.Truncated, Canceled: m.Canceled, NoCredit: m.NoCredit, Queued: m.Queued,
		PeersLost: m.PeersLost, Parks: m.Parks,
		PostedNow: m.PostedNow, UnexpectedNow: m.UnexpectedNow, UnexpectedBytes: m.UnexpectedBytes,
		UnexpectedPeak: m.UnexpectedPeak, QueuedBytes: m.QueuedBytes,
	}
}

// deviceName is the device that was named or, where none was, what its choice by itself amounts to.
func (w *World) deviceName() string {
	name := w.parts.dev.Name()
	switch {
	case name != auto:
		return name
	case w.localSize == w.size:
		return soft.WireSHM
	}
	return soft.WireSHM + "+" + soft.WireTCP
}
