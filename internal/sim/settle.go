package sim

import (
	"slices"

	"github.com/tagmatch/tagmatch/progress"
	"github.com/tagmatch/tagmatch/verbs/soft"
	"github.com/tagmatch/tagmatch/verbs/soft/softtest"
)

// settle brings a world to rest: everything arrives, receives that get nothing are cancelled, and
// the messages that nobody took are drained by wildcards, which belong to the history too. Then
// every operation has ended (V18).
func (w *world) settle() error {
	w.say("settle")
	if err := w.rest(); err != nil {
		return err
	}
	if err := w.checkHanging(); err != nil {
		return err // cancels would hide it
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
			if o.isRecv() {
				o.left = true
				r.cancel(o)
			}
		}
		if c := r.host.call; c != nil && c.o.left {
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
	for _, r := range w.ranks {
		if len(r.active) > 0 && !r.dead {
			return fail("unfinished", "V18: rank %d: %s", r.id, r.active[0])
		}
	}
	return nil
}

// drain takes the messages that wait. Those that are held up for credit come when there is a
// receive for them.
func (w *world) drain() error {
	largest := 0
	for i := range w.plan.Steps {
		largest = max(largest, w.plan.Steps[i].Size)
	}
	for range 4 + len(w.plan.Steps) {
		waiting := 0
		for _, r := range w.ranks {
			if r.dead || r.stopped {
				continue
			}
			n := r.engine.Metrics().UnexpectedNow
			if n == 0 && w.heldUp(r) {
				n = 1
				r.ack() // the receive has to wait
			}
			waiting += n
			for range n {
				w.receive(r, progress.AnySource, 0, 0, largest, false)
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

// heldUp tells whether some rank has sends to r that wait for credit.
func (w *world) heldUp(r *rank) bool {
	return slices.ContainsFunc(w.ranks, func(s *rank) bool {
		return !s.dead && !w.apart(s.id, r.id) && s.engine.Metrics().HeldNow > 0 &&
			slices.ContainsFunc(s.active, func(o *op) bool { return o.send && o.peer == r.id })
	})
}

// restRounds is more than anything that a plan can contain needs.
const restRounds = 50000

// rest polls until nothing is under way: no device has anything to do, and after that no host finds
// a completion.
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

// callRounds is how often calls poll themselves; in the other rounds somebody else of their rank
// does, which takes less time.
const callRounds = 8

// turn is a rank's share of a round. It returns how many events there were.
func (w *world) turn(r *rank, calls bool) int {
	for _, p := range r.paths { // lets the next poll look for events of the device, which is otherwise done now and then
		if err := p.Arm(); err == nil {
			p.Disarm()
		}
	}
	if w.plan.Params.Fabric.Stepped {
		w.works(r, 1)
	}
	if c := r.host.call; calls || c != nil && c.o.flush { // whether a flush was too early shows only at once
		return w.poll(r, 1)
	}
	return w.pollBeside(r)
}

// busy tells whether a device of the rank has something to do.
func (r *rank) busy() bool {
	return !r.dead && slices.ContainsFunc(r.devices, func(d *soft.Device) bool { return !softtest.Idle(d) })
}
