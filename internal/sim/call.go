package sim

import (
	"context"
	"iter"
	"time"

	"github.com/tagmatch/tagmatch/progress"
	"github.com/tagmatch/tagmatch/transport"
)

// call is a blocking call of a rank. Its goroutine is a coroutine: it runs when the rank polls, and
// stops where a rank sleeps, in Transport.Wait. A rank is in one call at a time; its other
// goroutines execute the other steps meanwhile.
type call struct {
	o       *op
	next    func() (struct{}, bool)
	yield   func(struct{}) bool
	context *deadline // the context of the call
	running bool
	polls   int // polls left
	events  int // events of its polls
	failure *Failure
}

// deadline is a context that ends when the plan decides. It has no channel: the scheduler wakes its
// waiter.
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

// wait returns the context that a call waits with from now on.
func (c *call) wait() context.Context {
	c.context = &deadline{Context: context.Background()}
	return c.context
}

// gate is between an engine and all of its transports, and limits the polls of a call as the
// plan says.
type gate struct {
	transport.Transport
	call  *call // of the rank, nil: none
	woken chan struct{}
}

func (g *gate) Poll() (int, error) {
	c := g.call
	if c == nil || !c.running {
		return g.Transport.Poll()
	}
	if c.polls == 0 {
		return 0, nil
	}
	c.polls--
	n, err := g.Transport.Poll()
	c.events += n
	return n, err
}

// Arm, Disarm and Wake do nothing: the scheduler decides who sleeps.
func (g *gate) Arm() error { return nil }
func (g *gate) Disarm()    {}

func (g *gate) Wait() error {
	g.call.yield(struct{}{})
	return nil
}

// Wake may be called by an engine's timer too.
func (g *gate) Wake() {
	select {
	case g.woken <- struct{}{}:
	default:
	}
}

// grace is the context in which a receiver has to answer a withdrawal.
func (g *gate) grace() (context.Context, context.CancelFunc) { return g.call.wait(), func() {} }

// start starts a call, which executes the operation.
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
	r.gate.call = c
	r.add(o, ended)
	w.cov[Calls]++
	if w.resume(r, 0); r.gate.call != nil {
		w.cov[Slept]++
		o.slept = true
	}
}

// resume lets a rank's call poll a number of times, after which it has returned or sleeps again.
func (w *world) resume(r *rank, polls int) (events int) {
	c := r.gate.call
	c.polls, c.events, c.running = polls, 0, true
	reads := r.engine.Metrics().ReadsNow
	_, sleeps := c.next()
	c.running = false
	if c.failure != nil {
		panic(c.failure)
	}
	if !sleeps {
		r.gate.call = nil
		c.events++
	} else if r.engine.Metrics().ReadsNow != reads {
		c.events++ // it receives what its probe has taken
	}
	w.harvest(r)
	c.o.until = r.posts
	return c.events
}

// expire ends the context of a rank's call.
func (w *world) expire(r *rank) {
	c := r.gate.call
	if c == nil || c.context.over {
		return
	}
	c.context.over = true
	c.o.expired++
	r.leave(c.o)
	w.resume(r, 0)
}

// poll polls a rank, in its call if there is one.
func (w *world) poll(r *rank, times int) (events int) {
	if r.gate.call != nil {
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

// closePatience bounds the two sides of a close. They only hand each other a lock.
const closePatience = 10 * time.Second

// closeEngine closes a rank's engine, which ends its call, and waits until that has left the
// transport. Both must be able to continue without the scheduler: a call that Close forgets would
// wait for ever.
func (w *world) closeEngine(r *rank) error {
	c := r.gate.call
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
		case <-r.gate.woken:
			if r.gate.call == nil {
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

// aside runs do in a goroutine.
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
