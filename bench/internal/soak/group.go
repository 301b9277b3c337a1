package soak

import (
	"errors"
	"fmt"

	"github.com/tagmatch/tagmatch/p2p"
)

// group exchanges within Comms of this round: part of the ranks in another order, then all.
func (x *exchange) group() error {
	c, err := x.w.Comm().Split(x.ctx, x.w.Rank()%2, -x.w.Rank())
	if err == nil {
		err = errors.Join(x.inComm(c), c.Close())
	}
	if err != nil {
		return err
	}
	if c, err = x.w.Comm().Dup(x.ctx); err == nil {
		err = errors.Join(x.inComm(c), c.Close())
	}
	return err
}

func (x *exchange) inComm(c *p2p.Comm) error {
	for k := 1; k < c.Size(); k++ {
		dst, src := (c.Rank()+k)%c.Size(), (c.Rank()-k+c.Size())%c.Size()
		out, in := x.plan(c.WorldRank(c.Rank()), c.WorldRank(dst)), x.plan(c.WorldRank(src), c.WorldRank(c.Rank()))
		for _, step := range []func(c *p2p.Comm, dst, src int, out, in []message) error{x.sendrecv, x.together, x.parts, x.again} {
			if err := step(c, dst, src, out, in); err != nil {
				return fmt.Errorf("to %d and from %d of %d: %w", dst, src, c.Size(), err)
			}
			x.pause()
		}
	}
	return nil
}

// received requires that a message of a Comm is m.
func (x *exchange) received(m *message, src int, st p2p.Status, buf []byte) error {
	if want := (p2p.Status{Source: src, Tag: m.sub, Len: int64(m.size)}); st != want {
		return fmt.Errorf("got %+v, want %+v", st, want)
	}
	x.round.count(m.size)
	return m.compare(buf[:m.size], x.scratch)
}

// sendrecv sends and receives one message at a time; who has none left does so with nobody.
func (x *exchange) sendrecv(c *p2p.Comm, dst, src int, out, in []message) error {
	buf := make([]byte, x.round.Size)
	for i := range max(len(out), len(in)) {
		to, from := p2p.ProcNull, p2p.ProcNull
		var o, m message
		if i < len(out) {
			o, to = out[i], dst
		}
		if i < len(in) {
			m, from = in[i], src
		}
		st, err := c.Sendrecv(x.ctx, to, o.sub, o.contents(x.scratch), from, m.sub, buf)
		if err == nil && from != p2p.ProcNull {
			err = x.received(&m, src, st, buf)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// together sends all by one call, and receives all by another.
func (x *exchange) together(c *p2p.Comm, dst, src int, out, in []message) error {
	var sends, recvs []p2p.Transfer
	for _, m := range in {
		recvs = append(recvs, p2p.Transfer{Rank: src, Tag: m.sub, Buf: make([]byte, m.size)})
	}
	for _, m := range out {
		sends = append(sends, p2p.Transfer{Rank: dst, Tag: m.sub, Buf: m.contents(make([]byte, m.size))})
	}
	return x.receivedAll(in, src, c.IsendAll(c.IrecvAll(nil, recvs), sends), func(i int) []byte { return recvs[i].Buf })
}

// receivedAll waits for all requests, of which the first ones are the receives of in.
func (x *exchange) receivedAll(in []message, src int, reqs []p2p.Request, buf func(i int) []byte) error {
	ends := make([]p2p.Completion, len(reqs))
	if err := p2p.WaitAll(x.ctx, reqs, ends); err != nil {
		return abandon(err, reqs)
	}
	for i := range in {
		if err := x.received(&in[i], src, ends[i].Status, buf(i)); err != nil {
			return err
		}
	}
	return nil
}

// parts sends from several buffers and receives into several, cut at random.
func (x *exchange) parts(c *p2p.Comm, dst, src int, out, in []message) error {
	var reqs []p2p.Request
	bufs := make([][]byte, len(in))
	for i, m := range in {
		bufs[i] = make([]byte, m.size)
		reqs = append(reqs, c.IrecvVec(src, m.sub, x.cut(bufs[i])))
	}
	for _, m := range out {
		reqs = append(reqs, c.IsendVec(dst, m.sub, x.cut(m.contents(make([]byte, m.size)))))
	}
	return x.receivedAll(in, src, reqs, func(i int) []byte { return bufs[i] })
}

// cut is buf in up to four parts, some of which may be empty.
func (x *exchange) cut(buf []byte) (parts [][]byte) {
	for range x.rng.IntN(4) {
		n := x.rng.IntN(len(buf) + 1)
		parts = append(parts, buf[:n])
		buf = buf[n:]
	}
	return append(parts, buf)
}

// again starts the same send and the same receive several times: the last of out and in.
func (x *exchange) again(c *p2p.Comm, dst, src int, out, in []message) error {
	const times = 3
	var send, recv *p2p.Persistent
	var m message
	if n := len(out); n > 0 {
		send = c.SendInit(dst, out[n-1].sub, out[n-1].contents(make([]byte, out[n-1].size)))
	}
	var buf []byte
	if n := len(in); n > 0 {
		m, buf = in[n-1], make([]byte, in[n-1].size)
		recv = c.RecvInit(src, m.sub, buf)
	}
	for range times {
		var reqs [2]p2p.Request
		var ends [2]p2p.Completion
		if recv != nil {
			reqs[0] = recv.Start()
		}
		if send != nil {
			reqs[1] = send.Start()
		}
		err := abandon(p2p.WaitAll(x.ctx, reqs[:], ends[:]), reqs[:])
		if err == nil && recv != nil {
			err = x.received(&m, src, ends[0].Status, buf)
		}
		if err != nil {
			return err
		}
		clear(buf)
	}
	return nil
}
