package soak

import (
	"errors"
	"fmt"

	"github.com/tagmatch/tagmatch/p2p"
)

// outgoing is what this rank sends in an exchange, to all others in a random order.
func (x *exchange) outgoing() []message {
	var lists [][]message
	for dst := range x.w.Size() {
		if dst != x.w.Rank() {
			lists = append(lists, x.plan(x.w.Rank(), dst))
		}
	}
	return x.shuffle(lists)
}

// shuffle merges lists at random, each in its order.
func (x *exchange) shuffle(lists [][]message) (all []message) {
	left := 0
	for _, list := range lists {
		left += len(list)
	}
	for ; left > 0; left-- {
		n := x.rng.IntN(left)
		i := 0
		for ; n >= len(lists[i]); i++ {
			n -= len(lists[i])
		}
		all = append(all, lists[i][0])
		lists[i] = lists[i][1:]
	}
	return all
}

// isend is Isend or Issend, of the World or of its Comm.
type isend = func(dst int, tag p2p.Tag, buf []byte) p2p.Request

// sendNamed sends in the World's Comm, where receives can name the source.
func (x *exchange) sendNamed() error {
	return x.sendAtOnce([]isend{x.w.Comm().Isend, x.w.Comm().Issend})
}

// sendTagged sends to receives that name a tag only.
func (x *exchange) sendTagged() error { return x.sendAtOnce([]isend{x.w.Isend, x.w.Issend}) }

// sendAtOnce starts all sends before it waits for any: receivers may want them in any order.
func (x *exchange) sendAtOnce(by []isend) error {
	var reqs []p2p.Request
	list := x.outgoing()
	for i := range list {
		r, err := x.isend(&list[i], by[x.rng.IntN(8)/7])
		if err != nil {
			return abandon(err, reqs)
		}
		reqs = append(reqs, r)
		x.pause()
	}
	err := x.overdue(p2p.WaitAll(x.ctx, reqs, nil), reqs, func(i int) int { return list[i].dst })
	return abandon(err, reqs)
}

// abandon ends what is under way where there is an error: Shutdown would wait for sends.
func abandon(err error, reqs []p2p.Request) error {
	if err != nil {
		for _, r := range reqs {
			r.Cancel()
		}
	}
	return err
}

// isend starts a send, when there is room for it.
func (x *exchange) isend(m *message, send isend) (p2p.Request, error) {
	buf := m.contents(make([]byte, m.size))
	for {
		r := send(m.dst, x.tag(m.sub), buf)
		if _, done, err := r.Peek(); !done || !errors.Is(err, p2p.ErrFull) {
			return r, nil
		}
		r.Free()
		if err := x.w.Room(x.ctx); err != nil {
			return r, err
		}
	}
}

// sendInTurn sends one after the other, for receivers that take what comes.
func (x *exchange) sendInTurn() error {
	for _, m := range x.outgoing() {
		send := x.w.Send
		if x.rng.IntN(8) == 0 {
			send = x.w.Ssend
		}
		if err := send(x.ctx, m.dst, x.tag(m.sub), m.contents(x.scratch)); err != nil {
			return x.late(err, m.dst)
		}
		x.pause()
	}
	return nil
}

// recvNamed receives by source and tag, so many at a time. Each receive has one message that it can
// get.
func (x *exchange) recvNamed() error {
	for todo := x.shuffle(x.expected(false).left); len(todo) > 0; {
		list := todo[:min(len(todo), 1+x.rng.IntN(64))]
		todo = todo[len(list):]
		reqs, bufs := make([]p2p.Request, len(list)), make([][]byte, len(list))
		for i, m := range list {
			bufs[i] = make([]byte, m.size)
			reqs[i] = x.w.Comm().Irecv(m.src, x.tag(m.sub), bufs[i])
		}
		x.pause()
		err := x.each(reqs, func(i int, st p2p.Status) error { return x.check(&list[i], st, bufs[i]) })
		if err != nil {
			return x.overdue(err, reqs, func(i int) int { return list[i].src })
		}
	}
	return nil
}

// each waits for receives that end in any order, by one of the calls that there are for that.
func (x *exchange) each(reqs []p2p.Request, got func(i int, st p2p.Status) error) error {
	ends := make([]p2p.Completion, 1+x.rng.IntN(len(reqs)))
	wait := func() (int, error) { return p2p.WaitSome(x.ctx, reqs, ends) }
	switch x.rng.IntN(3) {
	case 0:
		q := x.w.NewQueue(len(reqs))
		defer q.Close()
		for i, r := range reqs {
			r.Notify(q, uint64(i))
			reqs[i] = p2p.Request{}
		}
		wait = func() (int, error) { return q.Wait(x.ctx, ends) }
	case 1:
		wait = func() (int, error) {
			i, st, err := p2p.WaitAny(x.ctx, reqs)
			ends[0] = p2p.Completion{Data: uint64(max(i, 0)), Status: st}
			return 1, err
		}
	}
	for left := len(reqs); left > 0; {
		n, err := wait()
		for i := 0; i < n && err == nil; i++ {
			if err = ends[i].Err; err == nil {
				err = got(int(ends[i].Data), ends[i].Status)
			}
		}
		if err != nil {
			return err
		}
		left -= n
	}
	return nil
}

// recvAnySource receives by tag from any source, in a window. What a receive gets is known once
// those before it have ended.
func (x *exchange) recvAnySource() error {
	want := x.expected(true)
	var order []p2p.Tag
	for sub := range p2p.Tag(subs) {
		for range want.count(sub) {
			order = append(order, sub)
		}
	}
	x.rng.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	return x.inOrder(want, order, p2p.MaskExact)
}

// recvAnyTag receives whatever comes, in a window.
func (x *exchange) recvAnyTag() error {
	want := x.expected(false)
	return x.inOrder(want, make([]p2p.Tag, want.count(0)), anyTag)
}

// inOrder receives by these tags, and compares in the order of posting.
func (x *exchange) inOrder(want *cursors, subs []p2p.Tag, mask p2p.Mask) error {
	window := 1 + x.rng.IntN(16)
	reqs, bufs := make([]p2p.Request, window), make([][]byte, window)
	for i := range bufs {
		bufs[i] = make([]byte, x.round.Size)
	}
	next := 0
	for i := range subs {
		for ; next < len(subs) && next < i+window; next++ {
			reqs[next%window] = x.w.Irecv(x.tag(subs[next]), mask, bufs[next%window])
		}
		x.pause()
		st, err := reqs[i%window].Wait(x.ctx)
		if err == nil {
			err = want.take(st, bufs[i%window])
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// recvProbed receives what probes have found.
func (x *exchange) recvProbed() error {
	want := x.expected(false)
	buf := make([]byte, x.round.Size)
	for range want.count(0) {
		st, got, err := x.probe(buf)
		if err == nil {
			err = want.take(st, got)
		}
		if err != nil {
			return err
		}
		x.pause()
	}
	return nil
}

// probe receives one message.
func (x *exchange) probe(buf []byte) (p2p.Status, []byte, error) {
	tag := x.tag(0)
	switch x.rng.IntN(4) {
	case 0:
		got, st, err := x.w.RecvAlloc(x.ctx, tag, anyTag, int64(x.round.Size))
		return st, got, err
	case 1:
		seen, err := x.w.Probe(x.ctx, tag, anyTag)
		if err != nil {
			return seen, nil, err
		}
		// This goroutine alone receives with these tags, of which this one is the oldest.
		st, err := x.w.Recv(x.ctx, seen.Tag, p2p.MaskExact, buf)
		if err == nil && st != seen {
			err = fmt.Errorf("the probe has found %+v, the receive got %+v", seen, st)
		}
		return st, buf, err
	case 2:
		for x.ctx.Err() == nil {
			if m, ok, err := x.w.Improbe(tag, anyTag); ok || err != nil {
				return x.recvMessage(m, buf, err)
			}
			x.pause()
		}
		return p2p.Status{}, nil, x.ctx.Err()
	default:
		m, err := x.w.Mprobe(x.ctx, tag, anyTag)
		return x.recvMessage(m, buf, err)
	}
}

// recvMessage receives a message that was matched by a probe.
func (x *exchange) recvMessage(m *p2p.Message, buf []byte, err error) (p2p.Status, []byte, error) {
	if err != nil {
		return p2p.Status{}, nil, err
	}
	x.pause()
	if lent := m.Bytes(); lent != nil && x.rng.IntN(2) == 0 {
		defer m.Discard()
		return m.Status(), buf[:copy(buf, lent)], nil
	}
	if x.rng.IntN(2) == 0 {
		st, err := m.Irecv(buf).Wait(x.ctx)
		return st, buf, err
	}
	st, err := m.Recv(x.ctx, buf)
	return st, buf, err
}
