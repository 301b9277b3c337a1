package p2p

import (
	"context"
	"iter"

	"github.com/tagmatch/tagmatch/progress"
)

// Queue collects the completions of many requests: it is how to drive thousands at once. There are
// no callbacks: a goroutine that waits on a Queue may block, call this package and take its time.
//
// Completions come in the order in which the operations ended, each to one caller; any number of
// goroutines may wait on one Queue. Until a completion is reported by Poll or Wait its buffer is
// the library's. World.NewQueue makes a Queue; the zero value is not one.
type Queue struct {
	_ noCopy
	q *progress.Queue
}

// NewQueue makes a Queue for requests of w and its Comms. depth is how many requests it is likely
// to have at a time, and no limit; it allocates for these, up to 65,536, and for others later.
func (w *World) NewQueue(depth int) *Queue { return &Queue{q: w.eng.NewQueue(depth)} }

// Notify hands the request to q, which reports it with data once the operation has ended, errors
// included; the handle is inactive from then on. There is one Completion for each call: a zero
// Request is reported at once without an error, one that was consumed before with ErrInactive, and
// one of another World with ErrInvalid, while its operation goes on as after Free. Where q is
// closed nobody would report the request: Notify is Free then, and says so to Config.Logger; with a
// nil q it is Free. Cancel still works on the handle.
func (r Request) Notify(q *Queue, data uint64) {
	if q == nil {
		r.Free()
		return
	}
	r.r.Notify(q.q, r.label(data))
}

// The words of a label.
const (
	labelData = iota
	labelTag
	labelMark // rank and kind
)

// label is a request, and the data of Notify, as an engine's Queue keeps them.
func (r Request) label(data uint64) (l progress.Label) {
	l.Words[labelData], l.Words[labelTag], l.Words[labelMark] = data, uint64(r.tag), uint64(r.r.Marked())
	l.Ref = r.group
	return l
}

// completion converts an engine's completion.
func completion(c *progress.Completion) Completion {
	w := &c.Label.Words
	g, _ := c.Label.Ref.(*group)
	r := Request{progress.Request{}.Mark(uint32(w[labelMark])), g, Tag(w[labelTag])}
	st, err := r.outcome(c.Status, c.Err)
	return Completion{Data: w[labelData], Status: st, Err: err}
}

// batch is how many completions are taken from the engine at once.
const batch = 8

// Poll moves completions to dst, as many as there are and fit, and returns how many. Where there
// are none it makes progress. It never blocks.
func (q *Queue) Poll(dst []Completion) (n int) {
	var cs [batch]progress.Completion
	for {
		got := q.q.Poll(cs[:min(batch, len(dst)-n)])
		for i := range got {
			dst[n+i] = completion(&cs[i])
		}
		if n += got; got < batch || n == len(dst) {
			return n
		}
	}
}

// Wait waits for at least one completion, moves as many as there are and fit to dst, and returns
// how many. If ctx ends first it returns ctx's error; the operations go on. A Queue that is closed
// gives ErrClosed. A Queue without requests waits for some, until the World has ended: then it
// gives the reason. An empty dst is ErrInvalid.
func (q *Queue) Wait(ctx context.Context, dst []Completion) (int, error) {
	switch {
	case ctx == nil:
		return 0, errNoContext
	case len(dst) == 0:
		return 0, invalidf("dst is empty: there is no room for a completion")
	}
	var cs [batch]progress.Completion
	got, err := q.q.Wait(ctx, cs[:min(batch, len(dst))])
	for i := range got {
		dst[i] = completion(&cs[i])
	}
	switch {
	case err == nil && got == batch && got < len(dst):
		return got + q.Poll(dst[got:]), nil
	case err == nil || stopped(ctx, err):
		return got, err
	}
	return 0, wrapf("%w", fromEngine(err))
}

// All returns the completions of q as they come, each as Wait with room for one would: those that
// the loop does not reach are left for other calls. An error ends the iteration, and has no
// completion beside it: that of ctx, ErrClosed where q is closed, or the reason for which the World
// has ended. A Queue without requests waits for some, so that a loop for a number of completions
// counts them and breaks.
func (q *Queue) All(ctx context.Context) iter.Seq2[Completion, error] {
	return func(yield func(Completion, error) bool) {
		for {
			var one [1]Completion
			_, err := q.Wait(ctx, one[:])
			if !yield(one[0], err) || err != nil {
				return
			}
		}
	}
}

// Cancel asks for the end of all operations whose requests q has not reported, as Request.Cancel
// does. Each is reported still: with ErrCanceled, or with its outcome. A request that q is given
// later is not cancelled: a server that posts the next receive for each that is reported must stop
// posting before it calls Cancel.
func (q *Queue) Cancel() { q.q.Cancel() }

// Close ends the Queue; who waits gets ErrClosed. Completions that were not reported are dropped,
// and operations under way go on as after Free, with their buffers: close a Queue when it has
// reported all, after Cancel if need be. Calling Close again does nothing. Closing the World needs
// no Close of its Queues.
func (q *Queue) Close() error { return q.q.Close() }
