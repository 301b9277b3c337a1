package sim

import (
	"slices"

	"github.com/tagmatch/tagmatch/progress"
	"github.com/tagmatch/tagmatch/verbs/soft"
	"github.com/tagmatch/tagmatch/verbs/soft/softtest"
)

// settle completes a world: all messages arrive, receives without a message are cancelled, and
// remaining messages are received by wildcards, which belong to the history too. Then every
// operation has ended (V18).
func (w *world) settle() error {
	w.say("settle")
	for _, r := range w.ranks {
		for !r.dead && len(r.held) > 0 {
			w.use(r, 0, false)
		}
	}
	w.news()
	if err := w.rest(); err != nil {
		return err
	}
	if err := w.checkHanging(); err != nil {
		return err // cancels would hide the failure
	}
	if err := w.checkLosses(); err != nil {
		return err
	}
	if err := w.checkAborted(); err != nil {
		return err
	}
	for _, r := range w.ranks {
		if r.dead {
			continue
		}
		for _, o := range r.active {
			if o.look {
				if err := w.checkLook(r, o); err != nil {
					return err
				}
			}
			if o.isRecv() || o.look {
				o.unmatched = true
				r.cancel(o)
			}
		}
		if c := r.gate.call; c != nil && c.o.unmatched {
			w.expire(r)
		}
		w.harvest(r)
	}
	if err := w.rest(); err != nil {
		return err
	}
	if err := w.drain(); err != nil {
		return err
	}
	if err := w.retire(); err != nil {
		return err
	}
	for _, r := range w.ranks {
		if len(r.active) > 0 && !r.dead {
			return fail("unfinished", "V18: rank %d: %s", r.id, r.active[0])
		}
	}
	return nil
}

// drain receives the unexpected messages. Those held up for credit follow when there is a receive
// for them.
func (w *world) drain() error {
	largest := 0
	for i := range w.plan.Steps {
		largest = max(largest, w.plan.Steps[i].Size)
	}
	for range 4 + mostMany*len(w.plan.Steps) {
		waiting := 0
		for _, r := range w.ranks {
			if r.dead || r.stopped {
				continue
			}
			n := r.engine.Metrics().UnexpectedNow
			if n == 0 && w.heldUp(r) {
				n = 1
				r.ack(nil, 0) // the receive must not end because of losses
			}
			waiting += n
			for range n {
				w.receive(r, pattern{peer: progress.AnySource}, largest, false)
			}
			w.harvest(r)
		}
		if waiting == 0 {
			return nil
		}
		if err := w.rest(); err != nil {
			return err
		}
	}
	return fail("unfinished", "messages wait that wildcard receives do not get")
}

// heldUp reports whether some rank's sends to r wait for credit.
func (w *world) heldUp(r *rank) bool {
	return slices.ContainsFunc(w.ranks, func(s *rank) bool {
		return !s.dead && !w.apart(s.id, r.id) && s.engine.Metrics().HeldNow > 0 &&
			slices.ContainsFunc(s.active, func(o *op) bool { return o.send && o.peer == r.id })
	})
}

// restRounds is more than any plan needs.
const restRounds = 50000

// rest polls until nothing is in progress: no device has work, and after that no program finds a
// completion.
func (w *world) rest() error {
	for quiet, round := 0, 0; quiet < 2; round++ {
		if round == restRounds {
			return fail("unrest", "V18: after %d rounds of polls something is still under way", round)
		}
		n, refused := 0, w.refused
		for _, r := range w.ranks {
			if !r.dead {
				n += w.turn(r, quiet > 0 || round%callRounds == 0)
			}
		}
		quiet++
		if n != 0 || w.refused != refused || slices.ContainsFunc(w.ranks, (*rank).busy) {
			quiet = 0
		}
	}
	return nil
}

// callRounds is how often calls poll themselves; in other rounds another goroutine of their rank
// polls, which is faster.
const callRounds = 8

// turn polls a rank once, and returns the number of events.
func (w *world) turn(r *rank, calls bool) int {
	// The next poll asks each device for events, which polls do only now and then.
	for _, p := range r.paths {
		if err := p.Arm(); err == nil {
			p.Disarm()
		}
	}
	if w.plan.Params.Fabric.Stepped {
		w.works(r, 1)
	}
	// A premature return of Flush can be seen only at once.
	if c := r.gate.call; calls || c != nil && c.o.flush {
		return w.poll(r, 1)
	}
	return w.pollBeside(r)
}

// busy reports whether a device of the rank has work.
func (r *rank) busy() bool {
	return !r.dead && slices.ContainsFunc(r.devices, func(d *soft.Device) bool { return !softtest.Idle(d) })
}
