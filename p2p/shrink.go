package p2p

import (
	"context"
	"errors"
	"fmt"
	"runtime"

	"github.com/tagmatch/tagmatch/internal/contexts"
	"github.com/tagmatch/tagmatch/progress"
)

// Shrink makes a Comm of those ranks of c that live, in the order of c, with a context of its own,
// and returns the smallest of the values that they gave, such as the last step each has finished.
// It is collective over them: it waits until all that live have called it as often as this rank. It
// may be called on a Comm that is revoked, or on which collective calls have failed. Ranks may be
// lost meanwhile, rank 0 too. All that return the Comm have the same members in it, and the same
// value. A rank that is lost too late is a member still: the program finds it lost, and shrinks the
// result in its turn. What one rank has lost all others lose, so that of two ranks that have given
// each other up, and live, one or both are left out by the others. Such a rank gets a *PeerError,
// now and in later calls, where it hears from one of them that they go on without it; where it has
// lost them all, it makes a Comm without those that it has lost. The members are the same where no
// two ranks have given each other up, and live, while the call was under way.
//
// Where ctx ends while a rank has not called Shrink, this rank gives up. The others go on to wait
// for that one, and then get ErrGaveUp, with the rank that gave up. So they do where a rank that
// lives has closed c, or has none as its Dup has failed. All may call Shrink again then. Once all
// have called it, it ends without regard to ctx, but waits for ranks that are stopped. ErrFull is
// as of Dup; ErrClosed tells that c or the World is closed.
func (c *Comm) Shrink(ctx context.Context, value int64) (*Comm, int64, error) {
	if ctx == nil {
		return nil, 0, wrapf("shrink: %w", errNoContext)
	}
	err := c.turn.lock(ctx)
	if err != nil {
		return nil, 0, wrapf("shrink: %w", err)
	}
	defer c.turn.unlock()
	if c.closed.Load() {
		return nil, 0, wrapf("shrink: %w", errCommClosed)
	}
	_, err = c.vote(ctx, contexts.Ballot{Value: value}) // all that live are here then
	var n *Comm
	var d contexts.Decision
	if err == nil {
		d, err = c.elect(value, func(contexts.Decision) error { return nil })
	}
	if err == nil {
		n, err = c.derived(d, c.survivors(d))
	}
	if err != nil {
		return nil, 0, wrapf("shrink: %w", err)
	}
	return n, d.Value, nil
}

// elect votes until there is a context that is free on all ranks that live, as agree does. It ends
// with the error that wrong finds in a decision, as on all these ranks.
func (c *Comm) elect(value int64, wrong func(contexts.Decision) error) (contexts.Decision, error) {
	cs := &c.w.contexts
	defer cs.Ask(&c.comm)()
	for {
		b := contexts.Ballot{Value: value}
		b.Free, b.Closing, b.Offers = cs.Offer(&c.comm, c.w.eng.Failed())
		d, err := c.vote(context.Background(), b)
		if err == nil {
			err = wrong(d)
		}
		free := contexts.None
		if err == nil {
			free = d.Context
		}
		if b.Offers {
			cs.TakeOnly(free)
		}
		switch {
		case err != nil || d.Context != contexts.None:
			return d, err
		case d.Full:
			return d, errFull()
		}
		c.w.eng.Poll()
		runtime.Gosched()
	}
}

// vote takes part in a ballot of c, see contexts.Vote.
func (c *Comm) vote(ctx context.Context, b contexts.Ballot) (contexts.Decision, error) {
	w := c.w
	waiting, done := context.WithCancel(ctx)
	defer done()
	decided := false
	begin := func(e progress.Callback) {
		w.contexts.Vote(e, &c.comm, b, func() {
			decided = true
			done()
		})
	}
	if err := w.eng.Call(begin); err != nil {
		return contexts.Decision{}, err
	}
	err := w.progressUntil(waiting)
	gaveUp := false
	if over := w.eng.Call(func(e progress.Callback) { gaveUp = !decided && w.contexts.GiveUp(e, &c.comm) }); over != nil {
		return contexts.Decision{}, over
	}
	if gaveUp {
		return contexts.Decision{}, err
	}
	if by := w.contexts.LeftOutBy(&c.comm); by != contexts.None {
		cause := errors.New("it goes on without this rank, which is lost to it or to another one")
		w.eng.PeerLost(by, cause) // Failed lists what an error has named
		return contexts.Decision{}, &PeerError{Ranks: []int{by}, Cause: cause}
	}
	d := w.contexts.Decided(&c.comm)
	if d.FailedBy != contexts.None {
		return d, errorf(ErrGaveUp, "rank %d of the World", d.FailedBy)
	}
	return d, nil
}

// survivors is the ranks of the World that have part in a decision.
func (c *Comm) survivors(d contexts.Decision) (list []int) {
	lost := d.Lost
	for rank := range c.size {
		if len(lost) != 0 && lost[0] == rank {
			lost = lost[1:]
			continue
		}
		list = append(list, c.group.world(rank))
	}
	return list
}

// derived is the Comm of these ranks that a decision makes.
func (c *Comm) derived(d contexts.Decision, list []int) (*Comm, error) {
	n := new(Comm)
	n.init(c.w, d.Context, c.derivedID(d.Context, shrunk|uint64(d.Number())), newGroup(list, c.w.size))
	return n, n.openDerived(true)
}

// shrunk tells the numbers of ballots from those of other calls.
const shrunk = 1 << 63

// suspect is contexts.Comm.Suspect.
func (c *Comm) suspect(world, by int) {
	cause := fmt.Errorf("it is lost to rank %d", by)
	c.w.watcher.Go(func() { c.w.eng.PeerLost(world, cause) })
}

// errFull is the error where no context is free.
func errFull() error {
	return errorf(ErrFull, "no context is free on all ranks: %d Comms may live at once beside World.Comm, close some on all their ranks",
		contexts.Library-1)
}
