package p2p

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/tagmatch/tagmatch/bootstrap"
)

// lifeState is how far a World has ended.
type lifeState uint8

const (
	alive lifeState = iota
	shutDown
	closed
)

// Shutdown is the orderly end, collective: it delivers what was sent, waits until all ranks are
// here, then closes. If ctx ends first it closes as Close does and returns an error that says in a
// line how many sends and receives are unfinished, by rank, and which ranks have not come;
// Config.Logger gets what Dump would write.
//
// Leaving the launcher's store can take up to 2 seconds more, here and in Close, if another rank
// does not answer: rank 0 serves it until all have left.
func (w *World) Shutdown(ctx context.Context) error {
	if ctx == nil {
		return errNoContext
	}
	w.ending.Lock()
	defer w.ending.Unlock()
	if w.state != alive {
		return errorf(ErrClosed, "there is nothing to shut down")
	}
	err := w.eng.Flush(ctx)
	if err != nil {
		err = fmt.Errorf("p2p: shutdown: messages are not all delivered: %w%s", fromEngine(err), w.unfinished())
	} else if err = w.meet(ctx); err != nil {
		w.tellFailure(err)
		err = fmt.Errorf("p2p: shutdown: not all ranks have come: %w%s", err, w.unfinished())
	}
	w.parts.boot.Leave(err == nil) // before the peers can notice
	w.state = shutDown
	return errors.Join(err, w.release(ErrClosed))
}

// meet waits for the other ranks. What they still want of this one, acknowledgements or the data of
// a rendezvous, must move meanwhile, so in ProgressManual this goroutine waits inside the engine,
// for a message that nobody sends.
func (w *World) meet(ctx context.Context) error {
	if w.cfg.Progress == ProgressAuto {
		return w.parts.boot.Fence(ctx)
	}
	waiting, met := context.WithCancel(context.Background())
	result := make(chan error, 1)
	go func() {
		defer met()
		result <- w.parts.boot.Fence(ctx)
	}()
	tag := namespace | libraryContext<<contextShift | uint64(w.rank)<<sourceShift
	if _, err := w.eng.Recv(waiting, w.rank, tag, uint64(Exact), nil); !errors.Is(err, context.Canceled) {
		met() // the engine has failed; the fence says what of it concerns the ranks
	}
	return <-result
}

// unfinished is what was not done, in short, as a suffix of an error. The Logger gets the list.
func (w *World) unfinished() string {
	if w.cfg.Logger != nil {
		var b strings.Builder
		if err := w.eng.Dump(&b); err == nil {
			w.cfg.Logger.Info("shutdown failed", "rank", w.rank, "state", b.String())
		}
	}
	if s := w.eng.Summary(); s != "" {
		return "; unfinished here: " + s
	}
	return ""
}

// Close ends this rank's part at once. Pending operations end with ErrClosed; peers see *PeerError
// unless all had called Shutdown. After Shutdown it does nothing, so `defer w.Close()` is always
// right. Safe to call twice.
func (w *World) Close() error {
	if w.ending.TryLock() {
		if w.state == alive {
			w.parts.boot.Leave(false)
		}
		w.ending.Unlock()
	}
	err := w.eng.Close(ErrClosed)
	if !w.ending.TryLock() { // a Shutdown is under way, perhaps in the fence: end that too
		err = errors.Join(err, w.parts.boot.Close())
		w.ending.Lock()
	}
	defer w.ending.Unlock()
	if w.state != alive {
		return nil
	}
	w.state = closed
	return errors.Join(err, w.release(ErrClosed))
}

// release closes all parts, in the order in which they use each other.
func (w *World) release(cause error) error {
	var errs []error
	if w.eng != nil {
		errs = append(errs, w.eng.Close(cause))
	}
	for _, dev := range w.parts.devs {
		errs = append(errs, dev.Close())
	}
	errs = append(errs, w.parts.boot.Close())
	w.watcher.Wait()
	if w.alone {
		joined.Store(false)
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("p2p: close: %w", err)
	}
	return nil
}

// Abort ends the job: operations on all ranks end with ErrAborted, and the launcher is told to stop
// them with code. It does not exit this process.
func (w *World) Abort(code int, reason string) {
	// First the launcher: it also reaches ranks without a connection to this one.
	w.parts.boot.Abort(code, reason)
	w.eng.Abort(abortError(bootstrap.AbortInfo{Rank: w.rank, Code: code, Reason: reason}))
}
