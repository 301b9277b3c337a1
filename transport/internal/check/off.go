//go:build !invariants

package check

import (
	"github.com/tagmatch/tagmatch/transport"
	"github.com/tagmatch/tagmatch/verbs"
)

// Sink is what is left of the checks in a build without them: nothing.
type Sink struct{}

// New returns the sink of an engine, which its transport calls then, and no Sink.
func New(sink transport.Sink, _ verbs.Device, _ int) (transport.Sink, *Sink) { return sink, nil }

// Polls begins a Poll of the transport; call end when it returns.
func (*Sink) Polls() (end func()) { return func() {} }

// What a transport tells a Sink.
func (*Sink) Closes()              {}
func (*Sink) Reads(int, uint64)    {}
func (*Sink) ReadEnds(int, uint64) {}
func (*Sink) Grants(int, uint64)   {}
func (*Sink) Handled(uint32)       {}
func (*Sink) Adds(uint64)          {}
func (*Sink) Deletes(uint64)       {}
func (*Sink) ForcedDels(uint64)    {}
