package p2p

import "github.com/tagmatch/tagmatch/bootstrap"

// Tag labels a message. It has a type of its own, so that the compiler notices where variables for
// rank, tag and mask are swapped.
type Tag uint64

// Mask says which bits of a Tag a receive compares: a message matches when (its tag ^ tag) & mask
// == 0. A mask that few receives use may cost 40 bytes more for each unexpected message.
type Mask uint64

// Masks of World's receives.
const (
	MaskExact Mask = 1<<64 - 1 // only this tag
	MaskAny   Mask = 0         // every tag
)

// Limits and wildcards.
const (
	// MaxTag is the largest tag of World's own calls: bit 63 marks Comm and library traffic, and is
	// part of every mask, so that World.Recv(ctx, 0, MaskAny, buf) never takes a communicator's
	// message.
	MaxTag Tag = 1<<63 - 1
	// MaxCommTag is the largest tag of a Comm. On the wire that is 1 bit, 11 for the Comm, 20 for
	// the sender and 32 for the tag.
	MaxCommTag Tag = 1<<32 - 1

	AnyTag    Tag = 1<<64 - 1 // Comm receives and probes
	AnySource     = -1        // Comm receives and probes
	ProcNull      = -2        // Comm: no peer; operations succeed at once, move nothing, and are reported
)

// Status describes a message, that of a send too. Where there is none, for inactive requests,
// ProcNull as the peer and errors other than ErrTruncated, it is {ProcNull, AnyTag, 0}.
type Status struct {
	Source int   // the sender: a rank in the World or Comm of the call
	Tag    Tag   // of the message, also where a mask or AnyTag took it
	Len    int64 // of the message in bytes; after ErrTruncated more than the buffer has
}

// nothing is the status where no message was received: an inactive request, ProcNull as the peer,
// or an operation that failed.
var nothing = Status{Source: ProcNull, Tag: AnyTag}

// Completion is the outcome of one request. Data is the value given to Notify, or the index of the
// request in the slice given to WaitAll, WaitSome, TestAll or TestSome.
type Completion struct {
	Data   uint64
	Status Status
	Err    error
}

// Bootstrap connects the ranks of a job before they can send messages. Package bootstrap has one
// for each launcher.
type Bootstrap = bootstrap.Bootstrap

type noCopy struct{}

func (*noCopy) Lock()   {}
func (*noCopy) Unlock() {}
