package progress

import (
	"cmp"
	"slices"
)

// Unfinished describes operations of this rank that have not ended, or messages that no receive has
// matched: those alike in all that is known of them.
type Unfinished struct {
	Stage     Stage
	Kind      UnfinishedKind
	Peer      int    // in the World; AnySource: any
	Tag, Mask uint64 // the mask is that of a receive that has no message yet, else all ones
	Bytes     uint64 // of the message; of a receive, of its buffer; else 0
}

// UnfinishedKind says what is unfinished.
type UnfinishedKind uint8

// Kinds of Unfinished.
const (
	UnfinishedSend UnfinishedKind = iota
	UnfinishedRecv
	UnfinishedAlloc // RecvAlloc, without a message
	UnfinishedProbe
	UnfinishedMessage // that no receive has matched
	UnfinishedKinds   // how many there are
)

// Stage says how far it has come.
type Stage uint8

// Stages of receives and probes, of sends, and of messages.
const (
	StagePosted    Stage = iota // in software, without a message
	StageOffloaded              // in the device too, without a message
	StageLeaving                // the device is asked for it, and may have matched it; or it has a message
	StageReceiving              // its message is being received
	StageQueued                 // not sent: it waits for room in the transport, or for a connection
	StageHeld                   // not sent: its receiver has no memory for it
	StageRequested              // its receiver was told, and has not received it
	StageWithdrawn              // it is canceled, and its receiver has not answered
	StageHere                   // all bytes of the message are here
	StageAnnounced              // the message is with its sender
)

var stageTexts = [...]string{
	StagePosted:    "no message",
	StageOffloaded: "no message",
	StageLeaving:   "no message",
	StageReceiving: "its message is being received",
	StageQueued:    "not sent",
	StageHeld:      "not sent",
	StageRequested: "not received",
	StageWithdrawn: "canceled, and the receiver has not answered",
	StageHere:      "no receive has matched it",
	StageAnnounced: "no receive has matched it",
}

// String is what a program knows of the stage.
func (s Stage) String() string { return stageTexts[s] }

// Known is u as a program knows it, which cannot tell all stages apart.
func (u Unfinished) Known() Unfinished {
	u.Stage = Stage(slices.Index(stageTexts[:], u.Stage.String()))
	return u
}

// Compare orders by what it is.
func (u *Unfinished) Compare(v *Unfinished) int {
	return cmp.Or(cmp.Compare(u.Kind, v.Kind), cmp.Compare(u.Peer, v.Peer), cmp.Compare(u.Tag, v.Tag), cmp.Compare(u.Mask, v.Mask),
		cmp.Compare(u.Bytes, v.Bytes), cmp.Compare(u.Stage, v.Stage))
}

func (op *Op) unfinished() Unfinished {
	mask := op.wanted()
	u := Unfinished{StagePosted, UnfinishedRecv, max(op.peer, AnySource), op.tag & mask, mask, uint64(op.room())}
	switch {
	case op.allocates():
		u.Kind = UnfinishedAlloc
	case op.kind.probe():
		u.Kind = UnfinishedProbe
	}
	switch op.state {
	case opQueued:
		u.Kind, u.Stage = UnfinishedSend, StageQueued
		if op.e.peers[op.peer].out.HeldUp() {
			u.Stage = StageHeld
		}
	case opRequested:
		u.Kind, u.Stage = UnfinishedSend, StageRequested
	case opWithdrawing:
		u.Kind, u.Stage = UnfinishedSend, StageWithdrawn
	case opOffloaded:
		u.Stage = StageOffloaded
	case opCancelling:
		u.Stage = StageLeaving
	case opMatched, opReading:
		u.Peer, u.Stage = op.read.src, StageReceiving
	}
	return u
}

// wanted is the mask beside op.tag: all ones where that is the tag of a message.
func (op *Op) wanted() uint64 {
	switch op.state {
	case opPosted, opOffloaded, opCancelling:
		return op.mask
	}
	return ^uint64(0)
}

// allocates reports whether a posted receive is a RecvAlloc, which is a matched probe first.
func (op *Op) allocates() bool { return op.message != nil && op.message.alloc }
