package p2p

import (
	"bytes"
	"context"

	"github.com/tagmatch/tagmatch/progress"
)

// Sendrecv sends sbuf to dst and receives from src into rbuf at once: ranks that call it with each
// other, in pairs, rings or any pattern, do not deadlock. It returns when both buffers are the
// program's again, with the status of the receive. src may be AnySource and rtag AnyTag; dst and
// src may be ProcNull. If ctx ends first both are cancelled. If the send fails the receive is
// cancelled, and the error is that of the send; the message may have been received by then.
//
// sbuf and rbuf may be the same slice, or overlap: then bytes that cannot be sent at once are
// copied first, at the cost of an allocation of len(sbuf).
func (c *Comm) Sendrecv(ctx context.Context, dst int, stag Tag, sbuf []byte, src int, rtag Tag, rbuf []byte) (Status, error) {
	if uint(dst) >= c.ranks() || stag > MaxCommTag || ctx == nil {
		if err := c.refuseSend(ctx, dst, stag); err != nil {
			return nothing, err
		}
	}
	if err := ctx.Err(); err != nil {
		return nothing, opError(opSend, dst, stag, c.group, err)
	}
	from, known := c.source(src)
	if want, mask, ok := c.want(from, rtag); known && ok && dst != ProcNull {
		if st, ok, err := c.w.eng.Sendrecv(ctx, c.group.world(dst), c.pack(stag), sbuf, int(from), want, mask, rbuf); ok {
			return c.received(src, rtag, st, err)
		}
	}
	return c.sendrecvSlow(ctx, dst, stag, sbuf, src, rtag, rbuf)
}

// sendrecvSlow is Sendrecv where the send may have to wait, or where it or the receive has no peer.
func (c *Comm) sendrecvSlow(ctx context.Context, dst int, stag Tag, sbuf []byte, src int, rtag Tag, rbuf []byte) (Status, error) {
	if progress.Overlap(sbuf, rbuf) {
		sbuf = bytes.Clone(sbuf)
	}
	r := c.Irecv(src, rtag, rbuf)
	if r.r.BornFailed() { // of its arguments: nothing is sent then
		return r.Wait(ctx)
	}
	if err := c.Send(ctx, dst, stag, sbuf); err != nil {
		_, _ = r.r.Finish(endedContext)
		return nothing, err
	}
	return r.outcome(r.r.Finish(ctx))
}

// endedContext cancels what is waited for with it.
var endedContext = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()
