package p2p

import (
	"context"
	"sync/atomic"

	"github.com/tagmatch/tagmatch/internal/contexts"
	"github.com/tagmatch/tagmatch/progress"
)

// Packing of the tags of Comm and library traffic: 1 | context 11 | source 20 | tag 32. The source
// is a rank in the World.
const (
	namespace   = 1 << 63
	sourceShift = 32

	sourceMask = (1<<20 - 1) << sourceShift
	tagMask    = 1<<32 - 1

	maxRanks = 1 << 20
)

// Comm is an ordered group of ranks with a context of its own: its messages match only its own
// receives. World.Comm is the Comm of all ranks; Dup and Split make others from one, World.NewComm
// makes one of any ranks. The zero value is not a Comm.
//
// Tags go from 0 to MaxCommTag; destinations, sources and the ranks that errors name are ranks in
// the Comm, except those in a PeerError, which are ranks in the World; where the two differ the
// text of an error says which it names. Receives and probes take AnySource and AnyTag too. With
// ProcNull as the peer any call succeeds at once and moves nothing.
type Comm struct {
	_     noCopy
	w     *World
	base  uint64 // namespace and context
	group *group // its ranks; nil: all of the World
	rank  int    // of this process
	size  int
	any   source        // any of its ranks
	comm  contexts.Comm // the same, for World.contexts

	open    atomic.Int64 // size, and 0 once it is closed or revoked: no rank is in range then
	closed  atomic.Bool
	revoked atomic.Pointer[revokedError]
	calls
	own    own
	others atomic.Pointer[func() Collective] // see Collectives
}

// init makes c a Comm of these ranks of w.
func (c *Comm) init(w *World, context int, id uint64, g *group) {
	c.w, c.base, c.group = w, contexts.Base(context), g
	c.rank, c.size, c.any = w.rank, w.size, progress.AnySource
	if g != nil {
		c.rank, c.size = g.rank(w.rank), len(g.members)
	}
	if context != contexts.World { // whose losses are acknowledged with those of raw receives
		c.any = source(w.eng.Group(c.base, members{g, c.size}))
	}
	c.comm = contexts.Comm{Context: context, ID: id, Group: members{g, c.size}, Source: int(c.any), Revoked: c.markRevoked, Suspect: c.suspect}
	c.open.Store(int64(c.size))
	c.calls.init()
}

// World returns the World whose ranks c groups.
func (c *Comm) World() *World { return c.w }

// Rank is this process's rank in c, from 0 to Size-1.
func (c *Comm) Rank() int { return c.rank }

// Size is the number of ranks in c.
func (c *Comm) Size() int { return c.size }

// WorldRank is the rank in the World of a rank in c, or ProcNull where c has no such rank.
func (c *Comm) WorldRank(rank int) int {
	if uint(rank) >= uint(c.size) {
		return ProcNull
	}
	return c.group.world(rank)
}

// RankOf is the rank in c of a rank in the World, or ProcNull where that is not a member.
func (c *Comm) RankOf(worldRank int) int {
	switch {
	case c.group != nil:
		return c.group.rank(worldRank)
	case uint(worldRank) >= uint(c.size):
		return ProcNull
	}
	return worldRank
}

// AckFailures lets receives and probes from any source of c continue without these ranks of the
// World. Those that are not lost, or not of c, are ignored. Each Comm has to be told: a library
// that has heard of a loss does not hide it from the others. World.Comm's is World.AckFailures.
//
// A rank can send to itself: where all others are lost and acknowledged, such a receive waits.
func (c *Comm) AckFailures(ranks ...int) {
	if !c.closed.Load() {
		c.w.eng.AckFailures(int(c.any), ranks...)
	}
}

// ranks is how many ranks a call may name: none once c is closed or revoked.
func (c *Comm) ranks() uint { return uint(c.open.Load()) }

// Send is World.Send within c.
func (c *Comm) Send(ctx context.Context, dst int, tag Tag, buf []byte) error {
	if uint(dst) >= c.ranks() || tag > MaxCommTag || ctx == nil {
		return c.refuseSend(ctx, dst, tag)
	}
	return c.sent(dst, tag, c.w.eng.Send(ctx, c.group.world(dst), c.pack(tag), buf))
}

// Ssend is World.Ssend within c.
func (c *Comm) Ssend(ctx context.Context, dst int, tag Tag, buf []byte) error {
	if uint(dst) >= c.ranks() || tag > MaxCommTag || ctx == nil {
		return c.refuseSend(ctx, dst, tag)
	}
	return c.sent(dst, tag, c.w.eng.Ssend(ctx, c.group.world(dst), c.pack(tag), buf))
}

// Recv receives the oldest message of rank src (or AnySource) with tag (or AnyTag) into buf; see
// World.Recv for one that is longer.
func (c *Comm) Recv(ctx context.Context, src int, tag Tag, buf []byte) (Status, error) {
	from, known := c.source(src)
	want, mask, ok := c.want(from, tag)
	if !known || !ok || ctx == nil {
		return c.refuseRecv(ctx, src, tag)
	}
	st, err := c.w.eng.Recv(ctx, int(from), want, mask, buf)
	return c.received(src, tag, st, err)
}

// received is the engine's outcome of a receive as the program gets it.
func (c *Comm) received(src int, tag Tag, st progress.Status, err error) (Status, error) {
	if err != nil {
		return failedStatus(st, c.group, err), opError(opRecv, src, tag, c.group, err)
	}
	return status(st, c.group), nil
}

// Isend is World.Isend within c.
func (c *Comm) Isend(dst int, tag Tag, buf []byte) Request {
	if uint(dst) >= c.ranks() || tag > MaxCommTag {
		return c.refusedSend(dst, tag)
	}
	return ofSend(c.w.eng.Isend(c.group.world(dst), c.pack(tag), buf), c.group, dst, tag)
}

// Issend is World.Issend within c.
func (c *Comm) Issend(dst int, tag Tag, buf []byte) Request {
	if uint(dst) >= c.ranks() || tag > MaxCommTag {
		return c.refusedSend(dst, tag)
	}
	return ofSend(c.w.eng.Issend(c.group.world(dst), c.pack(tag), buf), c.group, dst, tag)
}

// Irecv is the nonblocking Recv: the request ends when the message is in buf.
func (c *Comm) Irecv(src int, tag Tag, buf []byte) Request {
	from, known := c.source(src)
	want, mask, ok := c.want(from, tag)
	if !known || !ok {
		return c.refusedRecv(src, tag)
	}
	return ofRecv(c.w.eng.Irecv(int(from), want, mask, buf), c.group, src, tag)
}

// sent wraps the engine's error of a send.
func (c *Comm) sent(dst int, tag Tag, err error) error {
	if err == nil {
		return nil
	}
	return opError(opSend, dst, tag, c.group, err)
}

// pack returns the tag on the wire of a message that this rank sends.
func (c *Comm) pack(tag Tag) uint64 { return c.base | uint64(c.w.rank)<<sourceShift | uint64(tag) }

// source is the source of a receive as the engine knows it: a rank in the World, or below 0 any of
// the ranks of a Comm.
type source int

// source returns the source that a receive from src has; false where c has no such rank.
func (c *Comm) source(src int) (from source, ok bool) {
	if uint(src) < c.ranks() {
		return source(c.group.world(src)), true
	}
	return c.any, src == AnySource && c.ranks() != 0
}

// want returns tag and mask of a receive: exact where both source and tag are given.
func (c *Comm) want(from source, tag Tag) (want, mask uint64, ok bool) {
	want, mask = c.base, uint64(MaskExact)
	if from >= 0 {
		want |= uint64(from) << sourceShift
	} else {
		mask &^= sourceMask
	}
	switch {
	case tag <= MaxCommTag:
		want |= uint64(tag)
	case tag == AnyTag:
		mask &^= tagMask
	default:
		return 0, 0, false
	}
	return want, mask, true
}

// refuseSend returns the error of a send with invalid arguments, or nil for ProcNull, which sends
// nothing.
func (c *Comm) refuseSend(ctx context.Context, dst int, tag Tag) error {
	var err error
	switch {
	case ctx == nil:
		err = errNoContext
	case c.ranks() == 0:
		err = c.gone()
	case tag > MaxCommTag:
		err = invalidf("tag %#x is out of range: tags of a Comm go from 0 to %#x", uint64(tag), uint64(MaxCommTag))
	case dst == ProcNull:
		if err = ctx.Err(); err == nil {
			return nil
		}
	default:
		err = invalidf("rank %d is out of range: destinations go from 0 to %d, or ProcNull", dst, c.size-1)
	}
	return &OpError{opSend, dst, tag, err, c.group}
}

// refusedSend is the request of a send that is not posted: its arguments are wrong, or it has no
// peer.
func (c *Comm) refusedSend(dst int, tag Tag) Request {
	if err := c.refuseSend(context.Background(), dst, tag); err != nil {
		return failedRequest(opSend, dst, tag, err)
	}
	return ofSend(c.w.eng.Null(), c.group, dst, tag)
}

// refusedRecv is refusedSend for a receive.
func (c *Comm) refusedRecv(src int, tag Tag) Request {
	if _, err := c.refuseRecv(context.Background(), src, tag); err != nil {
		return failedRequest(opRecv, src, tag, err)
	}
	return ofRecv(c.w.eng.Null(), c.group, src, tag)
}

// refuseRecv returns the error of a receive with invalid arguments, or an empty status for
// ProcNull.
func (c *Comm) refuseRecv(ctx context.Context, src int, tag Tag) (Status, error) {
	var err error
	switch {
	case ctx == nil:
		err = errNoContext
	case c.ranks() == 0:
		err = c.gone()
	case tag > MaxCommTag && tag != AnyTag:
		err = invalidf("tag %#x is out of range: tags of a Comm go from 0 to %#x, or AnyTag", uint64(tag), uint64(MaxCommTag))
	case src == ProcNull:
		if err = ctx.Err(); err == nil {
			return nothing, nil
		}
	default:
		err = invalidf("rank %d is out of range: sources go from 0 to %d, or AnySource or ProcNull", src, c.size-1)
	}
	return nothing, &OpError{opRecv, src, tag, err, c.group}
}
