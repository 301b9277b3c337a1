package p2p

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"sync"

	"github.com/tagmatch/tagmatch/internal/contexts"
	"github.com/tagmatch/tagmatch/internal/ranks"
	"github.com/tagmatch/tagmatch/progress"
)

// NewComm makes a Comm of these ranks of the World, in this order, with a context of its own. The
// members alone call it, all with the same list; other ranks have no part in it. It returns when
// all members have called it. Dup, Split and Shrink of the result work as of any Comm.
//
// The calls of a rank with other members are independent: goroutines may make them at once, and
// each waits for its own members alone. So two ranks that make two such calls one after the other,
// in different orders, wait for each other. Calls with the same members go on one after the other.
//
// It is ErrInvalid where the list is without this rank, has one that is not of the World, or one
// twice. Where members give the same ranks in different orders all get ErrInvalid. One that gives
// other ranks is waited for, as it may call again: where ctx ends first the error names it, if this
// rank has heard of its call.
//
// A member that is lost before all have called fails the call for all members, with the same ranks
// in the *PeerError. What one member has lost all others lose. Either all that live get the Comm,
// or none does; one that is lost later is a member of it. Where ctx ends while a member has not
// called, this rank gives up. The others go on to wait for that one, and then get ErrGaveUp, with
// the rank that gave up. All may call again then. Once all have called it ends without regard to
// ctx, but waits for ranks that are stopped. ErrFull is as of Dup.
//
// A rank keeps some 2 KiB of each set of members for which it has called NewComm, and 8 for
// each member.
func (w *World) NewComm(ctx context.Context, members []int) (*Comm, error) {
	c, err := w.newComm(ctx, slices.Clone(members))
	if err != nil {
		return nil, wrapf("new comm: %w", err)
	}
	return c, nil
}

func (w *World) newComm(ctx context.Context, list []int) (*Comm, error) {
	if ctx == nil {
		return nil, errNoContext
	}
	members := slices.Sorted(slices.Values(list))
	if err := w.checkMembers(members); err != nil {
		return nil, err
	}
	m := w.meetings.of(w, members)
	if err := m.turn.lock(ctx); err != nil {
		return nil, err
	}
	defer m.turn.unlock()
	if err := w.eng.Call(func(e progress.Callback) { w.contexts.Meet(e, &m.comm) }); err != nil {
		return nil, err
	}
	d, err := m.vote(ctx, contexts.Ballot{Value: int64(hashOf(list))})
	if err == nil {
		err = m.whole(d, list)
	}
	if err != nil {
		return nil, m.naming(ctx, members, err)
	}
	if d, err = m.elect(0, func(d contexts.Decision) error { return m.whole(d, list) }); err != nil {
		return nil, err
	}
	return m.derived(d, list)
}

// checkMembers checks a list in ascending order.
func (w *World) checkMembers(list []int) error {
	for i, rank := range list {
		if uint(rank) >= uint(w.size) {
			return invalidf("rank %d is out of range: ranks of the World go from 0 to %d", rank, w.size-1)
		}
		if i > 0 && list[i-1] == rank {
			return invalidf("rank %d is in the list twice", rank)
		}
	}
	if !slices.Contains(list, w.rank) {
		return invalidf("the list is without this rank, which is %d: only the members of a Comm make it", w.rank)
	}
	return nil
}

// meetings are the sets of ranks for which NewComm was called, by the hash of their list in
// ascending order.
type meetings struct {
	mu sync.Mutex
	m  map[uint64]*Comm // guarded by mu
}

// of is the meeting of these ranks, a Comm of which only the ballots are used.
func (ms *meetings) of(w *World, list []int) *Comm {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	id := hashOf(list)
	if c := ms.m[id]; c != nil {
		return c
	}
	c := &Comm{w: w, group: newGroup(list, w.size), size: len(list)}
	c.comm = contexts.Comm{Context: contexts.Meeting(id), ID: id, Group: members{c.group, c.size}, Suspect: c.suspect}
	c.calls.init()
	if ms.m == nil {
		ms.m = map[uint64]*Comm{}
	}
	ms.m[id] = c
	return c
}

func hashOf(list []int) uint64 {
	h := fnv.New64a()
	for _, rank := range list {
		_, _ = h.Write(binary.LittleEndian.AppendUint64(nil, uint64(rank)))
	}
	return h.Sum64()
}

// whole is the error of a decision in which not all have part with the same list.
func (c *Comm) whole(d contexts.Decision, list []int) error {
	if d.Differs != contexts.None {
		return invalidf("the members give their ranks in different orders: here %v, and rank %d gives another order than rank %d",
			list, d.Differs, c.group.world(0))
	}
	if len(d.Lost) == 0 {
		return nil
	}
	loss := &PeerError{Cause: errors.New("it is lost to another member")}
	for _, rank := range d.Lost {
		world := c.group.world(rank)
		c.w.eng.PeerLost(world, loss.Cause) // Failed lists what an error has named
		loss.Ranks = append(loss.Ranks, world)
	}
	if own, ok := fromEngine(c.w.eng.Loss(newGroup(loss.Ranks, c.w.size))).(*PeerError); ok {
		loss.Cause = own.Cause
	}
	return loss
}

// naming adds to the error of a call that ctx has ended a member that makes another one.
func (c *Comm) naming(ctx context.Context, list []int, err error) error {
	if rank := c.w.contexts.Elsewhere(&c.comm); rank != contexts.None && stopped(ctx, err) {
		return fmt.Errorf("%w; rank %d makes a Comm with this rank and other ones than here, which are %s", err, rank, ranks.List(list))
	}
	return err
}
