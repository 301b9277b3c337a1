package p2p

import (
	"context"
	"encoding/binary"
	"errors"
	"runtime"
	"time"

	"github.com/tagmatch/tagmatch/internal/contexts"
	"github.com/tagmatch/tagmatch/p2p/internal/coll"
	"github.com/tagmatch/tagmatch/progress"
)

// calls is what a Comm needs for its collective calls.
type calls struct {
	turn   ctxLock // held by the call under way
	number uint16  // of the last operation of package coll; guarded by turn
	made   uint64  // calls that have come to make a Comm; guarded by turn
	failed error   // guarded by turn; of a call: the ranks may not be at the same operation any more
}

func (c *calls) init() { c.turn = newCtxLock() }

// Dup makes a Comm of the same ranks in the same order, with a context of its own. It is
// collective: all ranks of c call it, and it returns when all have. So collective calls (Barrier,
// Dup, Split) on one Comm must be made in the same order on all its ranks, and two goroutines that
// make them need an order of their own; on different Comms they may go on at once in any order.
//
// 2,046 Comms may live at once on a rank beside World.Comm. Where all ranks are there and no
// context is free for all of them, all get ErrFull. Contexts of Comms that all ranks have closed
// are waited for.
//
// Where a rank of c is lost the error is a *PeerError: at once where this rank waits for that one,
// or knew of the loss before, else after half a second, in which the call may still succeed. Some
// ranks can have a Comm then that others have not: those close it, and receives from any source and
// collective calls on it fail by the same loss; a receive from a rank that has none waits for
// it, and what is sent to that one is discarded there. A rank that has lost nobody may wait, until
// ctx ends, for one that has lost another and lives. Where ctx ends first the call goes on for up
// to a second, as it asks the other ranks: the error names those that have not made the call, have
// made another one, are lost, or do not answer in that time; of a Comm of more than 64 ranks only
// those that this rank waits for, directly or through others. The other ranks may wait until their
// contexts end, and one context may be lost to the World where not all have come to the same point.
// On a rank that had another error than ErrFull, further collective calls on c fail with it;
// messages on c are not affected. The context of c itself is not used again after that, nor where c
// is closed during a call.
func (c *Comm) Dup(ctx context.Context) (*Comm, error) {
	return c.collective(ctx, callDup, func(ctx context.Context) (*Comm, error) {
		if err := coll.Barrier(ctx, c.operation()); err != nil {
			return nil, err
		}
		return c.derive(ctx, c.group, true)
	})
}

// Split makes a Comm of the ranks that give the same color, ordered by key and, where keys are
// equal, by their rank in c. Where color is negative the rank is in none, and gets nil, of which
// Close alone may be called. It is collective like Dup, of all ranks of c whatever their color.
func (c *Comm) Split(ctx context.Context, color, key int) (*Comm, error) {
	return c.collective(ctx, callSplit, func(ctx context.Context) (*Comm, error) {
		records := make([]byte, placeLen*c.size)
		putPlace(records[placeLen*c.rank:], place{int64(color), int64(key)})
		if err := coll.Gather(ctx, c.operation(), records); err != nil {
			return nil, err
		}
		if color < 0 {
			return c.derive(ctx, nil, false)
		}
		places := make([]place, c.size)
		for r := range places {
			places[r] = getPlace(records[placeLen*r:])
		}
		return c.derive(ctx, newGroup(subgroup(places, c.rank, c.group), c.w.size), true)
	})
}

// placeLen is the encoding of a place, bytes.
const placeLen = 16

func putPlace(b []byte, p place) {
	binary.LittleEndian.PutUint64(b, uint64(p.color))
	binary.LittleEndian.PutUint64(b[8:], uint64(p.key))
}

func getPlace(b []byte) place {
	return place{int64(binary.LittleEndian.Uint64(b)), int64(binary.LittleEndian.Uint64(b[8:]))}
}

// Close ends this rank's use of c; it is local and may be called twice. Receives on c that wait end
// with ErrClosed, and so do all later calls on c. Sends that were begun go on; requests are
// completed as usual. Messages on c that this rank has not received are discarded, also those that
// arrive later: for their senders they were received.
//
// When all ranks have closed c its context is used again for other Comms. A rank that is lost
// counts as one that has closed c; but where the first rank of c is lost before all have closed it,
// the context is not used again, as at a rank that has lost the first rank and is not lost itself.
//
// The program must order Close and the calls of other goroutines on c. One that began before Close
// goes on or ends as above, and one that begins after it is ErrClosed; a Send or Isend that begins
// while Close runs may do either, or be received by a later Comm. Where this rank is no member of
// that one, the receiver gives this rank up for it. World.Comm cannot be closed: ErrInvalid.
func (c *Comm) Close() error {
	if c == nil {
		return nil
	}
	if c == &c.w.comm {
		return invalidf("World.Comm lives as long as the World")
	}
	if c.closed.CompareAndSwap(false, true) {
		c.open.Store(0)
		c.w.gatherings.remove(c)
		keep := !c.inStep()
		_ = c.w.eng.Call(func(e progress.Callback) { c.w.contexts.Close(e, &c.comm, keep) }) // else nobody uses contexts any more
		c.w.eng.Retire(c.base, errCommClosed)
	}
	return nil
}

// inStep reports whether this rank has received all messages that collective calls on c have sent
// it.
func (c *Comm) inStep() bool {
	if !c.turn.tryLock() {
		return false // one is under way
	}
	defer c.turn.unlock()
	return c.failed == nil
}

// callKind is a kind of collective call.
type callKind uint8

const (
	callDup callKind = iota
	callSplit
	callBarrier
)

func (k callKind) String() string { return [...]string{"dup", "split", "barrier"}[k] }

// memberGrace is how long a call goes on that a rank of its Comm is lost to, and that waits for
// another one. That rank may have given the call up, or the lost one may have done all that the
// others wait for.
const memberGrace = 500 * time.Millisecond

// errMemberLost ends the context of a call after that.
var errMemberLost = errors.New("a rank is lost")

// collective calls f when no other collective call of this rank on c is under way. f's context ends
// with ctx, or after the loss of a rank of c.
func (c *Comm) collective(ctx context.Context, kind callKind, f func(context.Context) (*Comm, error)) (*Comm, error) {
	if ctx == nil {
		return nil, wrapf("%v: %w", kind, errNoContext)
	}
	if err := c.turn.lock(ctx); err != nil {
		return nil, wrapf("%v: %w", kind, err)
	}
	defer c.turn.unlock()
	switch {
	case ctx.Err() != nil:
		return nil, wrapf("%v: %w", kind, ctx.Err())
	case c.ranks() == 0:
		return nil, wrapf("%v: %w", kind, c.gone())
	case c.failed != nil:
		return nil, wrapf("%v: an earlier call on this Comm failed: %w", kind, c.failed)
	}
	all, end := context.WithCancelCause(ctx)
	defer end(nil)
	whole, late := false, (*time.Timer)(nil)
	lost := func() { late = time.AfterFunc(memberGrace, func() { end(errMemberLost) }) }
	revoked := func() { end(ErrRevoked) }
	begin := func(e progress.Callback) { whole = c.w.contexts.Begin(e, &c.comm, uint8(kind), lost, revoked) }
	// Of a Comm of one rank no message would find out that the World is closed.
	if err := c.w.eng.Call(begin); err != nil {
		return nil, wrapf("%v: %w", kind, err)
	}
	if !whole { // no rank can be at the end of this call
		end(errMemberLost)
	}
	if c.own.begin(kind); c.own.last.Load()>>8 == 1 {
		c.w.gatherings.add(c)
	}
	n, err := f(all)
	c.own.under.Store(false)
	c.w.contexts.End(&c.comm)
	if late != nil {
		late.Stop() // it holds ctx
	}
	if err == nil {
		return n, nil
	}
	if why := c.revoked.Load(); why != nil {
		c.failed = why
		return nil, wrapf("%v: %w", kind, why)
	}
	if errors.Is(err, context.Canceled) && context.Cause(all) == errMemberLost {
		err = fromEngine(c.w.eng.Loss(members{c.group, c.size}))
	}
	if !errors.Is(err, ErrFull) {
		err = c.withMissing(err)
		c.failed = err
	}
	return nil, wrapf("%v: %w", kind, err)
}

// derive makes a Comm of g, whose ranks are among those of c, on the ranks with member set; the
// others help and get nil. All ranks of c have entered the call.
func (c *Comm) derive(ctx context.Context, g *group, member bool) (*Comm, error) {
	c.made++
	context, err := c.agree(ctx, member)
	if err != nil {
		return nil, err
	}
	// No rank uses the context before all have taken it: where this fails, it is not free here and
	// so can be given to no Comm that has this rank, however far the others have come.
	err = coll.Barrier(ctx, c.operation())
	if !member {
		return nil, err
	}
	n := new(Comm)
	n.init(c.w, context, c.derivedID(context, c.made), g) // calls the engine
	over := n.openDerived(err == nil)
	if err != nil {
		c.w.eng.Retire(n.base, errCommClosed)
		return nil, err
	}
	return n, over
}

// agree takes a context that is free on all members. A rank can lend the set of its free contexts
// to one Comm at a time, or two could take the same: those that agree at the same time, in other
// goroutines, offer nothing meanwhile and try again. It goes on: whoever holds the set waits only
// for ranks that have entered this call and answer at once, and of all Comms that agree at the same
// time the one with the lowest context finds the set of each of its ranks free sooner or later.
func (c *Comm) agree(ctx context.Context, member bool) (context int, err error) {
	cs := &c.w.contexts
	if member {
		defer cs.Ask(&c.comm)()
	}
	for ctx.Err() == nil {
		var o offer
		held := false
		if member {
			o.free, o.closing, held = cs.Offer(&c.comm, c.w.eng.Failed())
		}
		common := o.words(held || !member, !member)
		if err := coll.And(ctx, c.operation(), common); err != nil {
			if held {
				cs.Take(contexts.Set{})
			}
			return 0, err
		}
		all := o.result(common)
		if !all {
			o.free = contexts.Set{}
		}
		if held {
			if context, ok := cs.Take(o.free); ok {
				return context, nil
			}
		} else if all && o.free != (contexts.Set{}) {
			return 0, nil
		}
		if all && o.closing == (contexts.Set{}) {
			return 0, errFull()
		}
		c.w.eng.Poll() // a Comm of this rank alone receives nothing above
		runtime.Gosched()
	}
	return 0, ctx.Err()
}

// offer is what the ranks tell each other in a round of agree, see contexts.Contexts.Offer.
type offer struct{ free, closing contexts.Set }

// words encodes an offer for an AND. The last word is not zero where each rank offers; anything
// says that this rank takes whatever the others do.
func (o *offer) words(offers, anything bool) []uint64 {
	w := append(append(make([]uint64, 0, 2*len(o.free)+1), o.free[:]...), o.closing[:]...)
	if anything {
		for i := range w {
			w[i] = ^uint64(0)
		}
	}
	if offers {
		return append(w, ^uint64(0))
	}
	return append(w, 0)
}

// result decodes the AND of all offers, and reports whether each rank has made one.
func (o *offer) result(words []uint64) bool {
	copy(o.free[:], words)
	copy(o.closing[:], words[len(o.free):])
	return words[2*len(o.free)] != 0
}

// Tags of collective calls: the library's context, the rank in the World as the source, and then
// the Comm's context 11 | operation 16 | round 5.
const (
	operationShift = 5
	callShift      = 21
)

// operation is the next operation of package coll among the ranks of c.
type operation struct {
	c   *Comm
	tag uint64 // without source and round
}

func (c *Comm) operation() *operation {
	c.number++
	return &operation{c, contexts.Base(contexts.Library) | uint64(c.comm.Context)<<callShift | uint64(c.number)<<operationShift}
}

func (o *operation) Rank() int { return o.c.rank }
func (o *operation) Size() int { return o.c.size }

// Exchange implements coll.Peers.
func (o *operation) Exchange(ctx context.Context, round, to int, out []byte, from int, in []byte) error {
	g, eng := o.c.group, o.c.w.eng
	tagOf := func(world int) uint64 { return o.tag | uint64(world)<<sourceShift | uint64(round) }
	o.c.w.contexts.Waits(&o.c.comm, g.world(from))
	r := eng.Irecv(g.world(from), tagOf(g.world(from)), uint64(MaskExact), in)
	err := eng.Send(ctx, g.world(to), tagOf(o.c.w.rank), out)
	if err != nil {
		r.Cancel()
		_, _ = r.Wait(context.Background())
		return fromEngine(err)
	}
	st, err := r.Wait(ctx)
	if err != nil && r.Active() {
		r.Cancel()
		if st, err = r.Wait(context.Background()); errors.Is(err, ErrCanceled) {
			err = ctx.Err()
		}
	}
	if err == nil && st.Len != int64(len(in)) {
		err = errorf(ErrProtocol, "rank %d sends %d bytes where %d are due: do all ranks make the same calls?", from, st.Len, len(in))
	}
	return fromEngine(err)
}
