package p2p

import (
	"context"
	"errors"

	"github.com/tagmatch/tagmatch/bootstrap"
	"github.com/tagmatch/tagmatch/internal/contexts"
	"github.com/tagmatch/tagmatch/internal/settings"
	"github.com/tagmatch/tagmatch/progress"
)

// lifeState is the state of a World.
type lifeState uint8

const (
	alive lifeState = iota
	shutDown
	closed
)

// Shutdown ends the job in order; it is collective. It delivers what was sent, waits until all
// ranks have called it, then closes. If ctx ends first it closes as Close does and returns an error
// of one line that lists what is unfinished here and, where all that was sent is delivered, names
// the ranks that have not called Shutdown:
//
//	send to 3, tag 0x7 of Comm 1, 102400 bytes, not received (20 times)
//	recv from any, tag 0x3, 8 bytes, no message
//	message from 5, tag 0x4, 16 bytes, no receive has matched it
//
// Ranks are those in the World. A tag without a Comm is of World.Comm, a raw tag of a World's own
// calls. Dup and Split take the lowest number of a Comm that is free in all of its ranks. Of sends,
// receives, probes and messages the error lists at most 8 lines each, and counts the rest;
// Config.Logger gets the output of Dump. Where each was posted a build with -tags invariants says
// there.
//
// Where a rank has ended no order is left to wait for: Shutdown closes at once. Where a host or
// network is lost while ranks wait in it, it ends within twice Config.PeerTimeout. After each loss
// that this rank knows of its error has a *PeerError in its chain, also after AckFailures. That
// names all that Failed lists, also where the lost rank lives and calls Shutdown too. What the
// caller had sent to the others is delivered by then, and they can still receive it, unless the
// error begins with "p2p: shutdown: messages are not all delivered". Survivors that still need each
// other agree on the end by messages of their own before they call it. Ranks that give each other
// up while they wait in Shutdown for the others have no more messages for each other: it ends in
// order.
//
// A second call waits for the first one, or for its own ctx, and is ErrClosed.
//
// Leaving the launcher's store can take up to 2 seconds more, here and in Close, if another rank
// does not answer: rank 0 serves it until all have left.
func (w *World) Shutdown(ctx context.Context) error {
	if ctx == nil {
		return errNoContext
	}
	if err := w.ending.lock(ctx); err != nil {
		return wrapf("shutdown: another call is at it: %w", err)
	}
	defer w.ending.unlock()
	if w.state != alive {
		return errorf(ErrClosed, "there is nothing to shut down")
	}
	w.leaving.Store(true)
	met := false
	err := w.eng.Flush(ctx)
	w.eng.Leaving()
	loss := w.eng.Loss(members{}) // not later: ranks that have met may be gone before this one hears of it
	if err != nil {
		err = wrapf("shutdown: messages are not all delivered: %w%s", fromEngine(err), w.unfinished())
	} else if err = w.meet(ctx); err != nil {
		w.tellFailure(err)
		loss = w.eng.Loss(members{}) // perhaps nobody has told the store of it
		err = wrapf("shutdown: not all ranks have come: %w%s", w.lostInFence(err), w.unfinished())
	} else if met = true; loss != nil {
		err = wrapf("shutdown: all ranks have come, after a loss: %w", fromEngine(loss))
	}
	if err != nil && loss != nil {
		err = withLoss(err, fromEngine(loss))
	}
	w.parts.boot.Leave(met) // before the peers can detect the end of the connections
	w.state = shutDown
	return errors.Join(err, w.release(ErrClosed, err == nil))
}

// withLoss adds a loss to an error that names none.
func withLoss(err, loss error) error {
	if _, ok := errors.AsType[*PeerError](err); ok {
		return err
	}
	return wrapf("%w; and %w", err, loss)
}

// lostInFence makes a loss that the launcher's store reports one that Failed lists, and returns the
// PeerError of all.
func (w *World) lostInFence(err error) error {
	r, ok := errors.AsType[*bootstrap.RankError](err)
	if !ok {
		return err
	}
	cause := departed(r.Reason)
	w.eng.PeerLost(r.Rank, cause)
	if loss := w.eng.Loss(members{}); loss != nil {
		return fromEngine(loss)
	}
	return &PeerError{Ranks: []int{r.Rank}, Cause: cause} // Close was faster
}

// meet waits for the other ranks in a fence. This rank must make progress meanwhile, as the others
// may still need acknowledgements or the data of a rendezvous: in ProgressManual this goroutine
// therefore waits inside the engine, for a message that is never sent.
func (w *World) meet(ctx context.Context) error {
	w.fence.Store(&ctx)
	defer w.fence.Store(nil)
	if w.cfg.Progress == settings.ProgressAuto {
		return w.parts.boot.Fence(ctx)
	}
	waiting, met := context.WithCancel(context.Background())
	result := make(chan error, 1)
	go func() {
		defer met()
		result <- w.parts.boot.Fence(ctx)
	}()
	if err := w.progressUntil(waiting); !errors.Is(err, context.Canceled) {
		met() // the engine has failed; the error of the fence names the ranks
	}
	return <-result
}

// progressUntil makes progress until ctx ends: it waits for a message that is never sent.
func (w *World) progressUntil(ctx context.Context) error {
	_, err := w.eng.Recv(progress.Aside{Context: ctx}, w.rank, fenceTag(w.rank), uint64(MaskExact), nil)
	return err
}

// fenceTag is that of a message which a rank never sends itself.
func fenceTag(rank int) uint64 { return contexts.Base(contexts.Library) | uint64(rank)<<sourceShift }

// Close ends this rank's part at once. Pending operations end with ErrClosed; peers see *PeerError
// unless all ranks had called Shutdown. After Shutdown it has no effect, so `defer w.Close()` is
// always right. It may be called twice. Peers that are stopped in the middle of a copy to
// the buffer of a receive are waited for, at most 2 s. Then the error, EBUSY, names them: a peer
// that runs again may write up to 256 KiB more to that buffer. The library keeps it, but memory
// that the program has mapped must stay mapped.
func (w *World) Close() error {
	if w.ending.tryLock() {
		if w.state == alive {
			w.parts.boot.Leave(false)
		}
		w.ending.unlock()
	}
	err := w.eng.Close(ErrClosed)
	if !w.ending.tryLock() { // a Shutdown is running, perhaps in the fence: end it
		err = errors.Join(err, w.parts.boot.Close())
		_ = w.ending.lock(context.Background()) // which does not end
	}
	defer w.ending.unlock()
	if w.state != alive {
		return nil
	}
	w.state = closed
	return errors.Join(err, w.release(ErrClosed, false))
}

// release closes all parts, in the order in which they use each other. Well says that all that was
// to be done is done.
func (w *World) release(cause error, well bool) error {
	var errs []error
	if w.stopWatchdog != nil { // the end of the job may take as long as it allows
		w.stopWatchdog()
	}
	if w.eng != nil {
		errs = append(errs, w.eng.Close(cause))
	}
	errs = append(errs, w.regions.close())
	for _, dev := range w.parts.devs {
		errs = append(errs, dev.Close())
	}
	errs = append(errs, w.parts.boot.Close())
	w.watcher.Wait()
	w.door.Close()
	if w.tracing.w != nil && w.eng != nil {
		w.tracing.close()
	}
	errs = append(errs, w.endRecord(well))
	if w.alone {
		joined.Store(false)
	}
	if err := errors.Join(errs...); err != nil {
		return wrapf("close: %w", err)
	}
	return nil
}

// Abort ends the job: operations on all ranks end with ErrAborted, and the launcher stops the ranks
// with exit code code, of which the system keeps the lowest 8 bits; where these are 0 it is 1. A
// launcher that takes no such request (mpirun without package bootstrap/pmix, tagmatch run --hosts,
// torchrun) goes by the codes that the ranks exit with. This process does not exit.
func (w *World) Abort(code int, reason string) {
	if code&0xff == 0 {
		code = 1
	}
	// The launcher first: it also reaches ranks that this one is not connected to.
	w.parts.boot.Abort(code, reason)
	w.eng.Abort(abortError(bootstrap.AbortInfo{Rank: w.rank, Code: code, Reason: reason}))
}
