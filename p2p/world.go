package p2p

import (
	"context"
	"fmt"
	"io"
	"sync"

	"github.com/tagmatch/tagmatch/progress"
)

// World is a job's set of ranks as one process sees it.
type World struct {
	_          noCopy
	rank, size int
	eng        *progress.Engine
	comm       Comm

	localRank, localSize int
	cfg                  Config // with variables filled in
	alone                bool   // no launcher: see detect
	parts                parts
	// Goroutines that wait for reports of other ranks, or send them.
	watcher sync.WaitGroup

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

// AckFailures lets receives from any source go on without ranks.
func (w *World) AckFailures(ranks ...int) { w.eng.AckFailures(ranks...) }

// Dump writes what this rank waits for, for people.
func (w *World) Dump(out io.Writer) error { return w.eng.Dump(out) }

// Comm is the Comm of all ranks; always the same.
func (w *World) Comm() *Comm { return &w.comm }

// The raw calls: 63-bit tags, any source unless the tag says otherwise. They are for the program
// that owns the World; a library uses a Comm and so cannot collide with it.

// Send returns when buf may be reused: the message is then buffered or received, and arrives even
// if this rank exits after Shutdown. It blocks while dst has no room for it.
func (w *World) Send(ctx context.Context, dst int, tag Tag, buf []byte) error {
	if uint(dst) >= uint(w.size) || tag > MaxTag || ctx == nil {
		return w.refuseSend(ctx, dst, tag)
	}
	if err := w.eng.Send(ctx, dst, uint64(tag), buf); err != nil {
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
		return failedStatus(st, err), recvError(AnySource, tag, st.Len, len(buf), err)
	}
	return status(st), nil
}

// Isend and Irecv never block and have no context: cancel by Request.Cancel. Errors come from the
// request. Isend fails with ErrFull where too many sends wait already, see Config.SendLimit and
// Room.
func (w *World) Isend(dst int, tag Tag, buf []byte) Request {
	if uint(dst) >= uint(w.size) || tag > MaxTag {
		return failedRequest(opSend, dst, tag, w.refuseSend(context.Background(), dst, tag))
	}
	return Request{r: w.eng.Isend(dst, uint64(tag), buf), tag: tag, rank: int32(dst), send: true}
}

// Room waits until Isend would not fail with ErrFull, and returns at once where it would not now.
// When ctx ends first it returns ctx's error. It reserves nothing: other goroutines may be faster.
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

// Irecv is Recv without waiting, see Isend.
func (w *World) Irecv(tag Tag, mask Mask, buf []byte) Request {
	if tag > MaxTag {
		return failedRequest(opRecv, AnySource, tag, refuseRecv(context.Background(), tag))
	}
	return Request{r: w.eng.Irecv(AnySource, uint64(tag), uint64(mask)|namespace, buf), tag: tag, room: len(buf), rank: AnySource}
}

// refuseSend says what is wrong with a send.
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

// refuseRecv says what is wrong with a receive.
func refuseRecv(ctx context.Context, tag Tag) error {
	err := errRawTag
	if ctx == nil {
		err = errNoContext
	}
	return &OpError{opRecv, AnySource, tag, err}
}

var errRawTag = invalidf("bit 63 of a tag belongs to the library: tags of a World's own calls go from 0 to %#x", uint64(MaxTag))

// status makes an engine's status the caller's: tags of a Comm are unpacked.
func status(st progress.Status) Status {
	if st.Tag&namespace != 0 {
		st.Tag &= tagMask
	}
	return Status{Source: st.Source, Tag: Tag(st.Tag), Len: st.Len}
}

// failedStatus is the status beside an error: only a message that was too long has one.
func failedStatus(st progress.Status, err error) Status {
	if err == ErrTruncated {
		return status(st)
	}
	return nothing
}
