package p2p

import (
	"context"

	"github.com/tagmatch/tagmatch/progress"
)

// Names of probes in an OpError.
const (
	opProbe  = "probe"
	opMprobe = "mprobe"
)

// Probe waits until there is a message that a Recv with this tag and mask would get, and returns
// its status. The message stays where it is: this is only sound where one goroutine receives.
// Prefer Mprobe: after Probe or Iprobe another goroutine's receive may be faster than the caller's.
// Probes see a message that no posted receive has matched, and that the device has not matched to
// one. Those that block take their place in the order of posting.
func (w *World) Probe(ctx context.Context, tag Tag, mask Mask) (Status, error) {
	if tag > MaxTag || ctx == nil {
		return nothing, of(opProbe, w.refuseRecv(ctx, tag))
	}
	st, err := w.eng.Probe(ctx, AnySource, uint64(tag), uint64(mask)|namespace)
	return probed(nil, AnySource, tag, st, err)
}

// Iprobe is Probe that does not block: it reports whether there is such a message. It makes
// progress, so that a loop of it ends.
func (w *World) Iprobe(tag Tag, mask Mask) (Status, bool, error) {
	if tag > MaxTag {
		return nothing, false, of(opProbe, w.refuseRecv(context.Background(), tag))
	}
	st, ok, err := w.eng.Iprobe(AnySource, uint64(tag), uint64(mask)|namespace)
	return iprobed(nil, AnySource, tag, st, ok, err)
}

// Mprobe waits until there is a message that a Recv with this tag and mask would get, and takes it:
// the caller receives it by the Message. Any number of goroutines may do so at once. If ctx ends
// first nothing was taken.
func (w *World) Mprobe(ctx context.Context, tag Tag, mask Mask) (*Message, error) {
	if tag > MaxTag || ctx == nil {
		return nil, of(opMprobe, w.refuseRecv(ctx, tag))
	}
	m, err := w.eng.Mprobe(ctx, AnySource, uint64(tag), uint64(mask)|namespace)
	return mprobed(nil, AnySource, tag, m, err)
}

// Improbe is Mprobe that does not block: false where there is no such message, see Iprobe.
func (w *World) Improbe(tag Tag, mask Mask) (*Message, bool, error) {
	if tag > MaxTag {
		return nil, false, of(opMprobe, w.refuseRecv(context.Background(), tag))
	}
	m, ok, err := w.eng.Improbe(AnySource, uint64(tag), uint64(mask)|namespace)
	return improbed(nil, AnySource, tag, m, ok, err)
}

// RecvAlloc is Recv into a new slice of the message's length, which is the caller's. limit bounds
// it, in bytes: of a longer message RecvAlloc returns the first limit bytes and ErrTruncated. 0 is
// no limit: then the sender decides how much memory is taken. A negative limit is ErrInvalid. Where
// the sender takes the message back meanwhile, RecvAlloc begins again, behind what is posted then.
func (w *World) RecvAlloc(ctx context.Context, tag Tag, mask Mask, limit int64) ([]byte, Status, error) {
	if limit < 0 {
		return nil, nothing, badLimit(nil, AnySource, tag, limit)
	}
	if tag > MaxTag || ctx == nil {
		return nil, nothing, w.refuseRecv(ctx, tag)
	}
	return w.recvAlloc(ctx, nil, AnySource, AnySource, tag, uint64(tag), uint64(mask)|namespace, limit)
}

// Probe is World.Probe for a message of rank src (or AnySource) with tag (or AnyTag).
func (c *Comm) Probe(ctx context.Context, src int, tag Tag) (Status, error) {
	from, want, mask, ok := c.wanted(src, tag)
	if !ok || ctx == nil {
		st, err := c.refuseRecv(ctx, src, tag)
		return st, of(opProbe, err)
	}
	st, err := c.w.eng.Probe(ctx, from, want, mask)
	return probed(c.group, src, tag, st, err)
}

// Iprobe is World.Iprobe within c. With ProcNull it finds an empty message.
func (c *Comm) Iprobe(src int, tag Tag) (Status, bool, error) {
	from, want, mask, ok := c.wanted(src, tag)
	if !ok {
		st, err := c.refuseRecv(context.Background(), src, tag)
		return st, err == nil, of(opProbe, err)
	}
	st, ok, err := c.w.eng.Iprobe(from, want, mask)
	return iprobed(c.group, src, tag, st, ok, err)
}

// Mprobe is World.Mprobe within c.
func (c *Comm) Mprobe(ctx context.Context, src int, tag Tag) (*Message, error) {
	from, want, mask, ok := c.wanted(src, tag)
	if !ok || ctx == nil {
		return c.noMessage(ctx, src, tag)
	}
	m, err := c.w.eng.Mprobe(ctx, from, want, mask)
	return mprobed(c.group, src, tag, m, err)
}

// Improbe is World.Improbe within c. With ProcNull it finds an empty message.
func (c *Comm) Improbe(src int, tag Tag) (*Message, bool, error) {
	from, want, mask, ok := c.wanted(src, tag)
	if !ok {
		m, err := c.noMessage(context.Background(), src, tag)
		return m, m != nil, err
	}
	m, ok, err := c.w.eng.Improbe(from, want, mask)
	return improbed(c.group, src, tag, m, ok, err)
}

// RecvAlloc is World.RecvAlloc within c.
func (c *Comm) RecvAlloc(ctx context.Context, src int, tag Tag, limit int64) ([]byte, Status, error) {
	from, want, mask, ok := c.wanted(src, tag)
	if limit < 0 {
		return nil, nothing, badLimit(c.group, src, tag, limit)
	}
	if !ok || ctx == nil {
		st, err := c.refuseRecv(ctx, src, tag)
		return nil, st, err
	}
	return c.w.recvAlloc(ctx, c.group, src, from, tag, want, mask, limit)
}

// wanted is source and want of a probe.
func (c *Comm) wanted(src int, tag Tag) (from int, want, mask uint64, ok bool) {
	s, known := c.source(src)
	want, mask, ok = c.want(s, tag)
	return int(s), want, mask, known && ok
}

// noMessage is the error of a matched probe with invalid arguments, or the empty Message of
// ProcNull.
func (c *Comm) noMessage(ctx context.Context, src int, tag Tag) (*Message, error) {
	st, err := c.refuseRecv(ctx, src, tag)
	if err != nil {
		return nil, of(opMprobe, err)
	}
	return &Message{st: st, eng: c.w.eng}, nil
}

func badLimit(g *group, src int, tag Tag, limit int64) error {
	return &OpError{opRecv, src, tag, invalidf("the limit is %d bytes: use 0 for none", limit), g}
}

// recvAlloc receives from rank src of the group, which the engine calls from.
func (w *World) recvAlloc(ctx context.Context, g *group, src, from int, tag Tag, want, mask uint64, limit int64) ([]byte, Status, error) {
	buf, st, err := w.eng.RecvAlloc(ctx, from, want, mask, limit)
	if err != nil {
		return buf, failedStatus(st, g, err), opError(opRecv, src, tag, g, err)
	}
	return buf, status(st, g), nil
}

func probed(g *group, src int, tag Tag, st progress.Status, err error) (Status, error) {
	if err != nil {
		return nothing, opError(opProbe, src, tag, g, err)
	}
	return status(st, g), nil
}

func iprobed(g *group, src int, tag Tag, st progress.Status, ok bool, err error) (Status, bool, error) {
	if !ok && err == nil {
		return nothing, false, nil
	}
	got, err := probed(g, src, tag, st, err)
	return got, ok, err
}

func mprobed(g *group, src int, tag Tag, m *progress.Message, err error) (*Message, error) {
	if err != nil {
		return nil, opError(opMprobe, src, tag, g, err)
	}
	return &Message{m: m, group: g, st: status(m.Status(), g)}, nil
}

func improbed(g *group, src int, tag Tag, m *progress.Message, ok bool, err error) (*Message, bool, error) {
	if !ok && err == nil {
		return nil, false, nil
	}
	got, err := mprobed(g, src, tag, m, err)
	return got, ok, err
}

// of names the operation in an error of invalid arguments.
func of(op string, err error) error {
	if e, ok := err.(*OpError); ok {
		e.Op = op
	}
	return err
}
