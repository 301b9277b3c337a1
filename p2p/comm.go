package p2p

import "context"

// Packing of the tags of Comm and library traffic: 1 | context 11 | source 20 | tag 32.
const (
	namespace    = 1 << 63
	contextShift = 52
	sourceShift  = 32

	sourceMask = (1<<20 - 1) << sourceShift
	tagMask    = 1<<32 - 1

	maxRanks = 1 << 20

	// worldContext is that of World.Comm, libraryContext that of p2p itself.
	worldContext   = 0
	libraryContext = 1<<11 - 1
)

// Comm is an ordered group of ranks with a context of its own: its messages match only its own
// receives. Tags go from 0 to MaxCommTag, sources are ranks in the Comm.
type Comm struct {
	_    noCopy
	w    *World
	base uint64 // namespace and context
}

// World returns the World whose ranks c groups.
func (c *Comm) World() *World { return c.w }

// Rank is this process's rank in c.
func (c *Comm) Rank() int { return c.w.rank }

// Size is the number of ranks in c.
func (c *Comm) Size() int { return c.w.size }

// Send is World.Send within c.
func (c *Comm) Send(ctx context.Context, dst int, tag Tag, buf []byte) error {
	if uint(dst) >= uint(c.w.size) || tag > MaxCommTag || ctx == nil {
		return c.refuseSend(ctx, dst, tag)
	}
	if err := c.w.eng.Send(ctx, dst, c.pack(tag), buf); err != nil {
		return opError(opSend, dst, tag, err)
	}
	return nil
}

// Ssend is World.Ssend within c.
func (c *Comm) Ssend(ctx context.Context, dst int, tag Tag, buf []byte) error {
	if uint(dst) >= uint(c.w.size) || tag > MaxCommTag || ctx == nil {
		return c.refuseSend(ctx, dst, tag)
	}
	if err := c.w.eng.Ssend(ctx, dst, c.pack(tag), buf); err != nil {
		return opError(opSend, dst, tag, err)
	}
	return nil
}

// Recv receives the oldest message of rank src (or AnySource) with tag (or AnyTag) into buf.
func (c *Comm) Recv(ctx context.Context, src int, tag Tag, buf []byte) (Status, error) {
	want, mask, ok := c.want(src, tag)
	if !ok || ctx == nil {
		return c.refuseRecv(ctx, src, tag)
	}
	st, err := c.w.eng.Recv(ctx, src, want, mask, buf)
	if err != nil {
		return failedStatus(st, err), recvError(src, tag, st.Len, len(buf), err)
	}
	return status(st), nil
}

// Isend and Irecv never block and have no context: use Request.Cancel. Errors are those of the
// request.
func (c *Comm) Isend(dst int, tag Tag, buf []byte) Request {
	if uint(dst) >= uint(c.w.size) || tag > MaxCommTag {
		return failedRequest(opSend, dst, tag, c.refuseSend(context.Background(), dst, tag))
	}
	return Request{r: c.w.eng.Isend(dst, c.pack(tag), buf), tag: tag, rank: int32(dst), send: true}
}

// Issend is the nonblocking Ssend.
func (c *Comm) Issend(dst int, tag Tag, buf []byte) Request {
	if uint(dst) >= uint(c.w.size) || tag > MaxCommTag {
		return failedRequest(opSend, dst, tag, c.refuseSend(context.Background(), dst, tag))
	}
	return Request{r: c.w.eng.Issend(dst, c.pack(tag), buf), tag: tag, rank: int32(dst), send: true}
}

// Irecv is the nonblocking Recv, see Isend.
func (c *Comm) Irecv(src int, tag Tag, buf []byte) Request {
	want, mask, ok := c.want(src, tag)
	if !ok {
		_, err := c.refuseRecv(context.Background(), src, tag)
		return failedRequest(opRecv, src, tag, err)
	}
	return Request{r: c.w.eng.Irecv(src, want, mask, buf), tag: tag, room: len(buf), rank: int32(src)}
}

// pack returns the tag on the wire of a message that this rank sends.
func (c *Comm) pack(tag Tag) uint64 { return c.base | uint64(c.w.rank)<<sourceShift | uint64(tag) }

// want returns tag and mask of a receive: exact where both source and tag are given.
func (c *Comm) want(src int, tag Tag) (want, mask uint64, ok bool) {
	want, mask = c.base, uint64(Exact)
	switch {
	case uint(src) < uint(c.w.size):
		want |= uint64(src) << sourceShift
	case src == AnySource:
		mask &^= sourceMask
	default:
		return 0, 0, false
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
	case tag > MaxCommTag:
		err = invalidf("tag %#x is out of range: tags of a Comm go from 0 to %#x", uint64(tag), uint64(MaxCommTag))
	case dst == ProcNull:
		if err = ctx.Err(); err == nil {
			return nil
		}
	default:
		err = invalidf("rank %d is out of range: destinations go from 0 to %d, or ProcNull", dst, c.w.size-1)
	}
	return &OpError{opSend, dst, tag, err}
}

// refuseRecv returns the error of a receive with invalid arguments, or an empty status for
// ProcNull.
func (c *Comm) refuseRecv(ctx context.Context, src int, tag Tag) (Status, error) {
	var err error
	switch {
	case ctx == nil:
		err = errNoContext
	case tag > MaxCommTag && tag != AnyTag:
		err = invalidf("tag %#x is out of range: tags of a Comm go from 0 to %#x, or AnyTag", uint64(tag), uint64(MaxCommTag))
	case src == ProcNull:
		if err = ctx.Err(); err == nil {
			return nothing, nil
		}
	default:
		err = invalidf("rank %d is out of range: sources go from 0 to %d, or AnySource or ProcNull", src, c.w.size-1)
	}
	return nothing, &OpError{opRecv, src, tag, err}
}
