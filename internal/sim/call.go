package sim

import (
	"context"
	"iter"
	"time"

	"github.com/tagmatch/tagmatch/progress"
	"github.com/tagmatch/tagmatch/transport"
)

// call is a blocking call of a rank. Its goroutine is a coroutine: it runs when the rank polls, and
// rests where a rank sleeps, in Transport.Wait. A rank is in one call at a time; its other
// goroutines do the rest of what the plan says meanwhile.
type call struct {
	o       *op
	next    func() (struct{}, bool)
	yield   func(struct{}) bool
	context *deadline // that it waits with
	running bool
	polls   int // that it may still make
	events  int // that they brought
	failure *Failure
}

// deadline is a context that ends when the plan says so. It has no channel: the scheduler wakes who
// waits with it.
type deadline struct {
	context.Context
	over bool
}

func (d *deadline) Err() error {
	if d.over {
		return context.DeadlineExceeded
	}
	return nil
}

// wait makes the context that a call waits with from now on.
func (c *call) wait() context.Context {
	c.context = &deadline{Context: context.Background()}
	return c.context
}

// host stands between an engine and all of its transports, and lets a call poll only as often as
// the plan says.
type host struct {
	transport.Transport
	call  *call // of the rank, nil: none
	woken chan struct{}
}

func (h *host) Poll() (int, error) {
	c := h.call
	if c == nil || !c.running {
		return h.Transport.Poll()
	}
	if c.polls == 0 {
		return 0, nil
	}
	c.polls--
	n, err := h.Transport.Poll()
	c.events += n
	return n, err
}

// Arm, Disarm and Wake are for waiting, which is the scheduler's.
func (h *host) Arm() error { return nil }
func (h *host) Disarm()    {}

func (h *host) Wait() error {
	h.call.yield(struct{}{})
	return nil
}

// Wake may be called by an engine's timer too.
func (h *host) Wake() {
	select {
	case h.woken <- struct{}{}:
	default:
	}
}

// grace is the context in which a receiver has to answer for a send that its call wants back.
func (h *host) grace() (context.Context, context.CancelFunc) { return h.call.wait(), func() {} }

// start starts a call, which does the operation.
func (w *world) start(r *rank, o *op, do func(ctx context.Context) (progress.Status, error)) {
	ended := make(chan struct{})
	o.call = true
	c := &call{o: o}
	ctx := c.wait()
	c.next, _ = iter.Pull(func(yield func(struct{}) bool) {
		defer func() {
			if v := recover(); v != nil {
				c.failure = panicked(v)
			}
		}()
		c.yield = yield
		o.st, o.err = do(ctx)
		close(ended)
	})
	r.host.call = c
	r.add(o, ended)
	w.cov[Calls]++
	if w.resume(r, 0); r.host.call != nil {
		w.cov[Slept]++
	}
}

// resume lets a rank's call poll so many times. Then it has returned or sleeps again.
func (w *world) resume(r *rank, polls int) (events int) {
	c := r.host.call
	c.polls, c.events, c.running = polls, 0, true
	_, sleeps := c.next()
	c.running = false
	if c.failure != nil {
		panic(c.failure)
	}
	if !sleeps {
		r.host.call = nil
		c.events++
	}
	w.harvest(r)
	c.events += w.repost(r, c.o)
	c.o.until = r.posts
	return c.events
}

// repost follows a Recv whose message was withdrawn while it was received: it waits for another,
// behind what was posted since, and may have begun to receive it. It returns how often that has
// happened.
func (w *world) repost(r *rank, o *op) (times int) {
	for n := r.engine.Metrics().Withdrawn; r.withdrawn < n; r.withdrawn++ {
		o.order, o.acked = r.posts, r.acked
		r.posts++
		o.again = true
		r.took = append(r.took, o)
		r.again++
		w.cov[Reposts]++
		times++
	}
	return times
}

// expire ends the context that a rank's call waits with.
func (w *world) expire(r *rank) {
	c := r.host.call
	if c == nil || c.context.over {
		return
	}
	c.context.over = true
	c.o.expired++
	r.leave(c.o)
	w.resume(r, 0)
}

// poll is a poll of a rank: its call's, if there is one.
func (w *world) poll(r *rank, times int) (events int) {
	if r.host.call != nil {
		events = w.resume(r, times)
		times = 0
	}
	for range times {
		events += w.pollBeside(r)
	}
	w.note(r.id, events)
	return events
}

// pollBeside polls as a rank's other goroutines do.
func (w *world) pollBeside(r *rank) int {
	n := r.engine.Poll()
	w.note(r.id, n)
	w.harvest(r)
	return n
}

// closePatience is how long the two sides of a close may take. They do no more than hand each other
// a lock.
const closePatience = 10 * time.Second

// closeEngine closes a rank's engine. That waits for a call to leave the transport, and ends it.
// Both must be able to go on without the scheduler then: a call that the close forgets waits for
// ever, out of its reach.
func (w *world) closeEngine(r *rank) error {
	c := r.host.call
	if c == nil {
		return r.engine.Close(progress.ErrClosed)
	}
	w.cov[ClosedCalls]++
	patience := time.NewTimer(w.patience)
	defer patience.Stop()
	closed := aside(func() error { return r.engine.Close(progress.ErrClosed) })
	for {
		select {
		case err := <-closed:
			return err
		case <-r.host.woken:
			if r.host.call == nil {
				continue
			}
			select {
			case err := <-aside(func() error { w.resume(r, 0); return nil }):
				if err != nil {
					return err
				}
				continue
			case <-patience.C:
			}
		case <-patience.C:
		}
		return fail("hanging", "rank %d: closing its engine leaves a call behind: %s", r.id, c.o)
	}
}

// aside does something in a goroutine of its own.
func aside(do func() error) <-chan error {
	ended := make(chan error, 1)
	go func() {
		defer func() {
			if v := recover(); v != nil {
				ended <- panicked(v)
			}
		}()
		ended <- do()
	}()
	return ended
}
