package progress

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"time"
)

// Flush returns when everything that was sent is delivered and has left this process.
func (e *Engine) Flush(ctx context.Context) error {
	return e.waitIn(ctx, opFlushing, &e.flushers, nil)
}

// Leaving says that this rank is about to close, and that its caller reports losses: others may
// close before it, and the log does not warn of them any more.
func (e *Engine) Leaving() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.leaving = true
}

// endFlushes ends flushes once nothing is under way.
func (w *waitEngine) endFlushes() {
	if w.sends.used != 0 || w.backlog.busy() || !w.tr.Drained() {
		return
	}
	for _, op := range w.flushers {
		op.complete(Status{}, nil)
	}
	w.flushers = w.flushers[:0]
}

// Close ends the engine at once. Operations end with cause, or ErrClosed where it is nil. Safe to
// call twice.
func (e *Engine) Close(cause error) error {
	e.closeOnce.Do(func() { e.closeErr = e.close(cause) })
	return e.closeErr
}

func (e *Engine) close(cause error) error {
	if cause == nil {
		cause = ErrClosed
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.closing { // the program may still ask for what has failed
		e.inv.warnOpen(e)
	}
	if e.broken == nil { // what a failure has ended programs need not complete
		e.pools.warnForgotten(e.log, e.cfg.Rank, e.entered.underWay())
		e.broken, e.unusual = cause, true
		for _, p := range e.made { // polls go on until Stop returns, and find these no more
			p.failReads(cause)
		}
	}
	e.wait.Stop()             // nobody may be inside the transport when it goes
	e.failAllLocked(e.broken) // deregisters the buffers that peers may read, while the transport is there for it
	e.wires = e.wiresLocked()
	err := e.tr.Close()
	e.closed = true
	e.failAllLocked(e.broken) // what was reading
	e.inv.closed(e)
	return err
}

// abortPolls is how often Abort polls to get its word out.
const abortPolls = 1000

// abortTime is the same in time: a peer that is slow should hear of the abort before it sees this
// rank leave.
const abortTime = time.Second

// Abort ends the job: operations of this rank end with err, and so do, as soon as they hear of it,
// those of all others.
func (e *Engine) Abort(err error) {
	if err == nil {
		err = ErrAborted
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.broken != nil {
		return
	}
	e.breakLocked(err)
	e.tellAbortLocked(err)
	start := time.Now()
	for i := 0; i < abortPolls || !e.cfg.Manual && time.Since(start) < abortTime; i++ {
		if e.pollLocked(); !e.backlog.busy() && e.tr.Drained() {
			return
		}
		if i%64 == 63 {
			runtime.Gosched() // peers in this process need a processor to hear of it
		}
	}
}

// tellAbortLocked tells all peers that are connected that the job is aborted, and why. The others
// hear of it by the store, or when they connect.
func (e *Engine) tellAbortLocked(err error) {
	text := err.Error()
	if !strings.HasPrefix(text, ErrAborted.Error()) {
		text = ErrAborted.Error() + ": " + text
	}
	e.abort = []byte(text[:min(len(text), e.caps.MaxCtrl-ctrlLen)])
	for _, p := range e.made {
		p.tellAbort()
	}
}

// tellAbort tells p that the job is aborted, if it is, and if p is connected.
func (p *peer) tellAbort() {
	if e := p.e; e.abort != nil && p.met && p.rank != e.cfg.Rank && p.lost == nil {
		p.sendCtrl(ctrl{kind: ctrlAbort, body: e.abort})
	}
}

// takeAbort ends this rank's operations because another rank aborted the job. It passes the word
// on: others must hear it before they see this rank leave. A message that was damaged does not end
// the job: the text of an ABORT says what it is.
func (p *peer) takeAbort(reason []byte) {
	e := p.e
	if e.broken != nil {
		return
	}
	text := strings.ToValidUTF8(string(reason[:min(len(reason), maxAbortText)]), "?")
	rest, ok := strings.CutPrefix(text, ErrAborted.Error())
	if !ok {
		p.lose(protocolError("rank %d ends the job without a word", p.rank))
		return
	}
	err := fmt.Errorf("%w%s", ErrAborted, rest)
	e.breakLocked(err)
	e.tellAbortLocked(err)
}

// maxAbortText bounds what a peer can put into an error, bytes.
const maxAbortText = 200
