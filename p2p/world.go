package p2p

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"

	"github.com/tagmatch/tagmatch/bootstrap"
	"github.com/tagmatch/tagmatch/internal/contexts"
	"github.com/tagmatch/tagmatch/internal/inspect/doors"
	"github.com/tagmatch/tagmatch/internal/settings"
	"github.com/tagmatch/tagmatch/internal/trace/tracefile"
	"github.com/tagmatch/tagmatch/progress"
)

// World is the set of ranks of a job, as one process sees it: at most 1,048,576. Init makes one,
// and Shutdown or Close ends it; the zero value is not one. Its own calls of sending, receiving and
// probing are the raw calls of the package comment: tags from 0 to MaxTag, a mask, no source.
type World struct {
	_          noCopy
	rank, size int
	eng        *progress.Engine
	comm       Comm
	contexts   contexts.Contexts
	meetings   meetings
	gatherings gatherings

	localRank, localSize int
	hosts                []int32         // by rank: the lowest rank on its host
	cfg                  settings.Config // the caller's, with environment variables and defaults filled in
	alone                bool            // there is no launcher: see detect
	parts                parts
	// Goroutines that watch for aborts and losses, or report losses.
	watcher sync.WaitGroup
	regions regions

	door         *doors.Door        // by which others look into this rank; nil: there is none
	stopWatchdog context.CancelFunc // nil: there is no watchdog
	records      *tracefile.File    // what it records into; nil: TAGMATCH_TRACE is off

	waits   *bootstrap.Waits                // of Init
	started atomic.Bool                     // Init is over, and the engine works
	tracing tracing                         // what it has recorded for them
	leaving atomic.Bool                     // Shutdown was called
	fence   atomic.Pointer[context.Context] // of Shutdown, while it waits for the other ranks

	patient bool // of tests: calls that have failed wait a minute for answers, see askFor

	ending ctxLock   // held by Shutdown and Close
	state  lifeState // guarded by ending
}

// Rank is this process's rank, from 0 to Size-1.
func (w *World) Rank() int { return w.rank }

// Size is the number of ranks.
func (w *World) Size() int { return w.size }

// LocalRank is this process's rank among those of this host.
func (w *World) LocalRank() int { return w.localRank }

// LocalSize is the number of ranks on this host.
func (w *World) LocalSize() int { return w.localSize }

// HostOf is the lowest rank on the host of a rank, or ProcNull where there is no such rank: ranks
// share a host where it is the same. All ranks know the same, without communication. Containers of
// one host are on that host; a virtual machine is a host of its own.
func (w *World) HostOf(rank int) int {
	if uint(rank) >= uint(len(w.hosts)) {
		return ProcNull
	}
	return int(w.hosts[rank])
}

// Failed lists the ranks known to be lost, in ascending order, among them all that an error has
// named; the slice is the caller's. While it holds ranks that AckFailures was not told of, receives
// and probes from any source fail where no message is there for them: the raw ones and those of
// World.Comm, and those of other Comms that such a rank is a member of, until their own AckFailures
// is told.
//
// A loss ends each receive and probe from any source that waits: the raw ones, and those of Comms
// that the lost rank is a member of. The error names ranks of which nothing that matches is left to
// receive. Failed may list others by then, whose last messages are still to be received: the next
// error names those. What an error has named, Failed lists and AckFailures acknowledges at once.
//
// When the launcher's store is lost, or the Bootstrap reports no losses, each rank looks for
// itself. A receive or a probe connects to the ranks that its message may come from, one from any
// source to all of them, and Dup, Split and Barrier to all ranks of the Comm. So it hears of their
// end within 2 seconds, or of that of a host within Config.PeerTimeout. It cannot know the end of a
// rank that it neither was connected to nor waits for: Failed does not list it until an operation
// with it fails.
func (w *World) Failed() []int { return w.eng.Failed() }

// AckFailures lets receives and probes from any source, raw ones and those of World.Comm, continue
// without these ranks; other Comms have an AckFailures of their own. Ranks that are not lost are
// ignored. A program that goes on without a rank posts again what its loss has ended:
//
//	if loss, ok := errors.AsType[*p2p.PeerError](err); ok {
//		takeBack(loss.Ranks)         // what these ranks had to do
//		w.AckFailures(loss.Ranks...) // and then receive again
//	}
func (w *World) AckFailures(ranks ...int) { w.eng.AckFailures(progress.AnySource, ranks...) }

// Dump writes the operations that this rank waits for, in a form for people that may change. Ranks
// are those in the World, and tags are named as in the error of Shutdown. Its error is that of out.
// A build with -tags invariants also lists the requests that have ended and were never waited for,
// and the stacks of all posts.
func (w *World) Dump(out io.Writer) error { return w.eng.Dump(out) }

// Comm is the Comm of all ranks, always the same one.
func (w *World) Comm() *Comm { return &w.comm }

// Send returns when buf may be reused: the message is then buffered or received, and arrives even
// if this rank exits after Shutdown. It blocks while dst has no memory for the message; one of more
// than Config.EagerLimit bytes is never buffered, and waits for its receive, also where dst is this
// rank. Only memory bounds a message's length.
//
// If ctx ends, a large message whose receiver knows of it is withdrawn: the receiver answers that
// it has not got it; or it has it, and Send returns nil. One that does not answer within 100 ms,
// as it is stopped, or is in ProgressManual and does not call this package, finds the message
// withdrawn or, mostly over TCP, may have all bytes already: the error is ErrMaybeDelivered too
// then. (On a NIC only the receiver's answer frees the buffer.)
func (w *World) Send(ctx context.Context, dst int, tag Tag, buf []byte) error {
	if uint(dst) >= uint(w.size) || tag > MaxTag || ctx == nil {
		return w.refuseSend(ctx, dst, tag)
	}
	return sent(dst, tag, w.eng.Send(ctx, dst, uint64(tag), buf))
}

// Ssend is Send that returns when the message is matched: a receive, or a matched probe followed by
// its Recv or Discard, has taken it.
func (w *World) Ssend(ctx context.Context, dst int, tag Tag, buf []byte) error {
	if uint(dst) >= uint(w.size) || tag > MaxTag || ctx == nil {
		return w.refuseSend(ctx, dst, tag)
	}
	return sent(dst, tag, w.eng.Ssend(ctx, dst, uint64(tag), buf))
}

// Recv takes the oldest message that matches into buf. A longer message than buf is ErrTruncated:
// buf has its first bytes, the Status its length, and the rest is dropped.
//
// If ctx ends Recv returns at once, except while a chunk (at most 256 KiB) is being copied. A
// sender that is stopped while it copies one to buf is waited for. A message that was being
// received stays available to the next receive. Recv returns later, with the message and no error,
// where another posted receive matches that message, or where the device's tag list has matched it
// already (on a NIC, or with transport tmsrq). If the sender is lost meanwhile it returns an error,
// ctx's or a *PeerError.
func (w *World) Recv(ctx context.Context, tag Tag, mask Mask, buf []byte) (Status, error) {
	if tag > MaxTag || ctx == nil {
		return nothing, w.refuseRecv(ctx, tag)
	}
	st, err := w.eng.Recv(ctx, AnySource, uint64(tag), uint64(mask)|namespace, buf)
	if err != nil {
		return failedStatus(st, nil, err), opError(opRecv, AnySource, tag, nil, err)
	}
	return status(st, nil), nil
}

// Isend is the nonblocking Send: it never blocks, and the request ends when buf may be reused. It
// fails with ErrFull where too many sends are queued, see Config.SendLimit and Room.
func (w *World) Isend(dst int, tag Tag, buf []byte) Request {
	if uint(dst) >= uint(w.size) || tag > MaxTag {
		return failedRequest(opSend, dst, tag, w.refuseSend(context.Background(), dst, tag))
	}
	return ofSend(w.eng.Isend(dst, uint64(tag), buf), nil, dst, tag)
}

// Issend is the nonblocking Ssend: the request ends when the message is matched.
func (w *World) Issend(dst int, tag Tag, buf []byte) Request {
	if uint(dst) >= uint(w.size) || tag > MaxTag {
		return failedRequest(opSend, dst, tag, w.refuseSend(context.Background(), dst, tag))
	}
	return ofSend(w.eng.Issend(dst, uint64(tag), buf), nil, dst, tag)
}

// Room waits until Isend, of w or a Comm, would not fail with ErrFull. If ctx ends first it returns
// ctx's error. It reserves nothing: another goroutine may be faster.
func (w *World) Room(ctx context.Context) error {
	if ctx == nil {
		return errNoContext
	}
	err := w.eng.Room(ctx)
	if err == nil || stopped(ctx, err) {
		return err
	}
	return wrapf("%w", err)
}

// Irecv is the nonblocking Recv: the request ends when the message is in buf. Where the sender
// withdraws the message meanwhile, the receive goes back to its place in the order of receives and
// takes the next message that matches; receives posted later may have had messages before. It goes
// to the end where a device has a later receive that overlaps it, or where senders wait for memory
// of this rank. Until a receive ends, what is in its buffer is undefined.
func (w *World) Irecv(tag Tag, mask Mask, buf []byte) Request {
	if tag > MaxTag {
		return failedRequest(opRecv, AnySource, tag, w.refuseRecv(context.Background(), tag))
	}
	return ofRecv(w.eng.Irecv(AnySource, uint64(tag), uint64(mask)|namespace, buf), nil, AnySource, tag)
}

// refuseSend returns the error of a send with invalid arguments.
func (w *World) refuseSend(ctx context.Context, dst int, tag Tag) error {
	err := errRawTag
	switch {
	case ctx == nil:
		err = errNoContext
	case uint(dst) >= uint(w.size):
		err = invalidf("rank %d is out of range: destinations go from 0 to %d", dst, w.size-1)
	}
	return &OpError{opSend, dst, tag, err, nil}
}

// refuseRecv returns the error of a receive or probe with invalid arguments.
func (w *World) refuseRecv(ctx context.Context, tag Tag) error {
	err := errRawTag
	if ctx == nil {
		err = errNoContext
	}
	return &OpError{opRecv, AnySource, tag, err, nil}
}

// sent wraps the engine's error of a send.
func sent(dst int, tag Tag, err error) error {
	if err == nil {
		return nil
	}
	return opError(opSend, dst, tag, nil, err)
}

var errRawTag = invalidf("bit 63 of a tag belongs to the library: tags of a World's own calls go from 0 to %#x", uint64(MaxTag))

// status converts an engine's status: tags of a Comm are unpacked, and the source is a rank in the
// group of the Comm, nil for all of the World.
func status(st progress.Status, g *group) Status {
	if st.Tag&namespace != 0 {
		st.Tag &= tagMask
	}
	if g != nil {
		st.Source = g.rank(st.Source)
	}
	return Status{Source: st.Source, Tag: Tag(st.Tag), Len: st.Len}
}

// failedStatus is the status beside an error: that of the message after ErrTruncated, else nothing.
func failedStatus(st progress.Status, g *group, err error) Status {
	if errors.Is(err, ErrTruncated) {
		return status(st, g)
	}
	return nothing
}
