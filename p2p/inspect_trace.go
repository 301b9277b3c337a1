package p2p

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tagmatch/tagmatch/internal/inspect"
	"github.com/tagmatch/tagmatch/internal/trace"
	"github.com/tagmatch/tagmatch/progress"
)

// Bounds of a trace.
const (
	longestTrace = trace.Longest + time.Minute // who has begun it ends it before
	keptTrace    = time.Minute                 // what was recorded is kept for so long, to be read
)

// tracing is the trace of a rank, which is asked for at the door of a rank of the job.
type tracing struct {
	w *World // constant

	mu     sync.Mutex
	id     int          // of the last one that was begun
	over   int          // of the last one that was to end
	runs   bool         // it has not ended
	answer trace.Answer // head and numbers
	done   *trace.Trace // what was recorded, with the part of the tags that a Comm has left out
	expiry *time.Timer  // ends what runs, then drops what was recorded; nil: there is neither
	turn   int          // counts traces, so that a timer that is late does nothing
}

var errNoTrace = errors.New("nothing was recorded: a trace was not begun, or its records were dropped a minute after its end")

// serve answers a request.
func (t *tracing) serve(q trace.Request, me *inspect.State) (trace.Answer, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case q.Start && q.ID == t.over: // what is asked at once may come in any order
		return trace.Answer{}, errNoTrace
	case q.Start:
		return t.start(q, me)
	case q.Stop:
		t.over = q.ID
	}
	if q.ID != t.id {
		return trace.Answer{}, errNoTrace
	}
	if q.Stop {
		t.stop()
	}
	if t.done == nil {
		return trace.Answer{}, errNoTrace
	}
	a := t.answer
	if q.Read {
		a.Comms = nil // which were told
	}
	if q.Reads(t.w.rank) {
		a.Part = t.part(q.From)
	}
	return a, nil
}

func (t *tracing) start(q trace.Request, me *inspect.State) (trace.Answer, error) {
	if q.For <= 0 || q.For > longestTrace || q.Records <= 0 || q.Records > trace.Most {
		return trace.Answer{}, fmt.Errorf("a trace takes up to %v, with up to %d records", longestTrace, trace.Most)
	}
	if f := t.w.records; f != nil {
		return trace.Answer{}, fmt.Errorf("TAGMATCH_TRACE has it record into %s: tagmatch trace --read shows that, also while it runs", f.Path())
	}
	if t.runs && t.id == q.ID { // it was asked by way of another rank, too
		return t.answer, nil
	}
	if t.runs { // before there is memory for another one
		return trace.Answer{}, progress.ErrTracing
	}
	t.done = nil
	if _, err := t.w.eng.StartTrace(trace.NewRing(q.Records)); err != nil {
		return trace.Answer{}, err
	}
	t.id, t.runs = q.ID, true
	t.answer = trace.Answer{Version: trace.Version, Job: me.Job, Rank: me.Rank, Size: me.Size, Host: me.Host, PID: me.PID, Program: me.Program}
	t.expire(q.For, t.stop)
	return t.answer, nil
}

// expire calls f, with the lock, in a while, unless expire or close is called before.
func (t *tracing) expire(after time.Duration, f func()) {
	t.halt()
	turn := t.turn
	t.expiry = time.AfterFunc(after, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.turn == turn {
			f()
		}
	})
}

func (t *tracing) halt() {
	t.turn++
	if t.expiry != nil {
		t.expiry.Stop()
		t.expiry = nil
	}
}

// stop ends what runs, if anything does.
func (t *tracing) stop() {
	if !t.runs {
		return
	}
	t.runs = false
	done := t.w.eng.StopTrace()
	stamp(&t.answer, done.Start)
	t.answer.Records, t.answer.Lost = len(done.Records), done.Lost
	t.answer.Comms = trace.Name(done.Records, inspect.CommOf)
	t.done = done
	t.expire(keptTrace, func() { t.done = nil })
}

// part is records from one on.
func (t *tracing) part(from int) (b []byte) {
	from = min(from, len(t.done.Records))
	list := t.done.Records[from:min(from+trace.MostInPart, len(t.done.Records))]
	for i := range list {
		b = list[i].Append(b)
	}
	return b
}

// close ends everything; it may be called twice.
func (t *tracing) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.halt()
	if t.runs {
		t.w.eng.StopTrace()
	}
	t.runs, t.done = false, nil
}
