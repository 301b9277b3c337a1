package p2p

import (
	"context"
	"fmt"
	"io"
	"sync"

	"github.com/tagmatch/tagmatch/internal/contexts"
	"github.com/tagmatch/tagmatch/progress"
)

// World is the set of ranks of a job, as one process sees it.
type World struct {
	_          noCopy
	rank, size int
	eng        *progress.Engine
	comm       Comm
	contexts   contexts.Contexts

	localRank, localSize int
	cfg                  Config // the caller's, with environment variables filled in
	alone                bool   // there is no launcher: see detect
	parts                parts
	// Goroutines that watch for aborts and losses, or report losses.
	watcher sync.WaitGroup
	regions regions

	ending sync.Mutex // held by Shutdown and Close
	state  lifeState  // guarded by ending
}

// Rank is this process's rank, from 0 to Size-1.
func (w *World) Rank() int { return w.rank }

// Size is the number of ranks.
func (w *World) Size() int { return w.size }

// LocalRank is this process's rank among those of this host.
func (w *World) LocalRank() int { return w.localRank }

// LocalSize is the number of ranks on this host.
func (w *World) LocalSize() int { return w.localSize }

// Failed lists the ranks known to be lost. Receives from any source fail while it holds ranks not
// passed to AckFailures.
func (w *World) Failed() []int { return w.eng.Failed() }

// AckFailures lets receives from any source continue without these ranks.
func (w *World) AckFailures(ranks ...int) { w.eng.AckFailures(ranks...) }

// Dump writes the operations that this rank waits for, in a form for people.
func (w *World) Dump(out io.Writer) error { return w.eng.Dump(out) }

// Comm is the Comm of all ranks, always the same one.
func (w *World) Comm() *Comm { return &w.comm }

// The raw calls have 63-bit tags and receive from any source, unless the program puts the source
// into the tag. They are for the program that owns the World; a library uses a Comm, whose messages
// cannot match a raw receive.

// Send returns when buf may be reused: the message is then buffered or received, and arrives even
// if this rank exits after Shutdown. It blocks while dst has no memory for the message.
func (w *World) Send(ctx context.Context, dst int, tag Tag, buf []byte) error {
	if uint(dst) >= uint(w.size) || tag > MaxTag || ctx == nil {
		return w.refuseSend(ctx, dst, tag)
	}
	if err := w.eng.Send(ctx, dst, uint64(tag), buf); err != nil {
		return opError(opSend, dst, tag, err)
	}
	return nil
}

// Ssend is Send that returns when the message is matched: a receive, or a matched probe followed by
// its Recv or Discard, has taken it.
func (w *World) Ssend(ctx context.Context, dst int, tag Tag, buf []byte) error {
	if uint(dst) >= uint(w.size) || tag > MaxTag || ctx == nil {
		return w.refuseSend(ctx, dst, tag)
	}
	if err := w.eng.Ssend(ctx, dst, uint64(tag), buf); err != nil {
		return opError(opSend, dst, tag, err)
	}
	return nil
}

// Recv takes the oldest message that matches into buf.
func (w *World) Recv(ctx context.Context, tag Tag, mask Mask, buf []byte) (Status, error) {
	if tag > MaxTag || ctx == nil {
		return nothing, refuseRecv(ctx, tag)
	}
	st, err := w.eng.Recv(ctx, AnySource, uint64(tag), uint64(mask)|namespace, buf)
	if err != nil {
		return failedStatus(st, nil, err), recvError(AnySource, tag, st.Len, len(buf), err)
	}
	return status(st, nil), nil
}

// Isend and Irecv never block and have no context: use Request.Cancel. Errors are those of the
// request. Isend fails with ErrFull where too many sends are queued, see Config.SendLimit and Room.
func (w *World) Isend(dst int, tag Tag, buf []byte) Request {
	if uint(dst) >= uint(w.size) || tag > MaxTag {
		return failedRequest(opSend, dst, tag, w.refuseSend(context.Background(), dst, tag))
	}
	return Request{r: w.eng.Isend(dst, uint64(tag), buf), tag: tag, rank: int32(dst), send: true}
}

// Issend is the nonblocking Ssend: the request ends when the message is matched.
func (w *World) Issend(dst int, tag Tag, buf []byte) Request {
	if uint(dst) >= uint(w.size) || tag > MaxTag {
		return failedRequest(opSend, dst, tag, w.refuseSend(context.Background(), dst, tag))
	}
	return Request{r: w.eng.Issend(dst, uint64(tag), buf), tag: tag, rank: int32(dst), send: true}
}

// Room waits until Isend would not fail with ErrFull. If ctx ends first it returns ctx's error. It
// reserves nothing: another goroutine may be faster.
func (w *World) Room(ctx context.Context) error {
	if ctx == nil {
		return errNoContext
	}
	err := w.eng.Room(ctx)
	if err == nil || stopped(ctx, err) {
		return err
	}
	return fmt.Errorf(prefix+"%w", err)
}

// Irecv is the nonblocking Recv, see Isend.
func (w *World) Irecv(tag Tag, mask Mask, buf []byte) Request {
	if tag > MaxTag {
		return failedRequest(opRecv, AnySource, tag, refuseRecv(context.Background(), tag))
	}
	return Request{r: w.eng.Irecv(AnySource, uint64(tag), uint64(mask)|namespace, buf), tag: tag, room: len(buf), rank: AnySource}
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
	return &OpError{opSend, dst, tag, err}
}

// refuseRecv returns the error of a receive with invalid arguments.
func refuseRecv(ctx context.Context, tag Tag) error {
	err := errRawTag
	if ctx == nil {
		err = errNoContext
	}
	return &OpError{opRecv, AnySource, tag, err}
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
	if err == ErrTruncated {
		return status(st, g)
	}
	return nothing
}
