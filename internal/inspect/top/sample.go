package top

import (
	"encoding/json"
	"time"

	"github.com/tagmatch/tagmatch/internal/inspect"
)

// values is what of p2p.Metrics is in the table.
type values struct {
	EagerSent, RndvSent, EagerReceived, RndvReceived                     uint64
	EagerSentBytes, RndvSentBytes, EagerReceivedBytes, RndvReceivedBytes uint64
	Waited                                                               time.Duration
	PostedNow, UnexpectedNow                                             int
	UnexpectedBytes                                                      int64
	Offload                                                              struct{ Matched uint64 }
}

// SampleOf is what a rank has answered.
func SampleOf(m *inspect.Metrics) Sample {
	s := Sample{Rank: m.Rank, PID: m.PID, Host: m.Host, Silent: m.Silent, At: m.At}
	if s.Silent != "" {
		return s
	}
	var v values
	if err := json.Unmarshal(m.Values, &v); err != nil {
		s.Silent = "its counters cannot be read: " + err.Error()
		return s
	}
	s.Levels = Levels{Posted: v.PostedNow, Unexpected: v.UnexpectedNow, UnexpectedBytes: v.UnexpectedBytes, UnexpectedLimit: m.UnexpectedLimit}
	s.Counts = Counts{
		Sent: v.EagerSent + v.RndvSent, SentBytes: v.EagerSentBytes + v.RndvSentBytes,
		Received: v.EagerReceived + v.RndvReceived, ReceivedBytes: v.EagerReceivedBytes + v.RndvReceivedBytes,
		Offloaded: v.Offload.Matched, Waited: v.Waited, CPU: m.CPU,
	}
	return s
}
