package jobtest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/tagmatch/tagmatch/p2p"
)

// talk is checked messages by every kind of call, in rounds, among the ranks of a Comm. Each round
// has a Comm of its own.
type talk struct {
	w     *p2p.World
	c     *p2p.Comm
	seed  uint64
	count int // rounds
}

// Tags of a round's Comm. Those below are of its messages.
const (
	talkTags           = 4
	tagIsLast  p2p.Tag = 10
	tagNothing p2p.Tag = 11 // nobody sends it
)

// perPair is how many messages a rank sends to each other one in a round.
const perPair = 40

// barrier waits for all.
func (t *talk) barrier(ctx context.Context) error {
	var reqs []p2p.Request
	for r := range t.c.Size() {
		reqs = append(reqs, t.c.Isend(r, tagIsLast, nil), t.c.Irecv(r, tagIsLast, nil))
	}
	return p2p.WaitAll(ctx, reqs, nil)
}

// round exchanges messages. Rank 0 decides whether it was the last time.
func (t *talk) round(ctx context.Context, enough bool) (last bool, err error) {
	d, err := t.c.Dup(ctx)
	if err != nil {
		return false, err
	}
	t.count++
	say := []byte{0}
	if d.Rank() == 0 {
		if enough {
			say[0] = 1
		}
		for dst := 1; dst < d.Size(); dst++ {
			if err := d.Send(ctx, dst, tagIsLast, say); err != nil {
				return false, err
			}
		}
	} else if _, err := d.Recv(ctx, 0, tagIsLast, say); err != nil {
		return false, err
	}
	g, ctx := errgroup.WithContext(ctx)
	for dst := range d.Size() {
		if dst != d.Rank() {
			g.Go(func() error { return t.sendAll(ctx, d, dst) })
		}
	}
	g.Go(func() error { return t.recvAll(ctx, d) })
	g.Go(func() error { return t.cancelAll(d) })
	if err := g.Wait(); err != nil {
		return false, fmt.Errorf("round %d: %w", t.count, err)
	}
	return say[0] == 1, d.Close()
}

func (t *talk) rng(d *p2p.Comm, what int) *rand.Rand {
	return rand.New(rand.NewPCG(t.seed<<16|uint64(t.count), uint64(d.Rank())<<16|uint64(what)))
}

func talkSize(rng *rand.Rand) int {
	switch rng.IntN(8) {
	case 0:
		return sendHeader + rng.IntN(200<<10)
	case 1, 2:
		return sendHeader + rng.IntN(8<<10)
	}
	return sendHeader + rng.IntN(64)
}

// sendAll sends a round's messages to one rank, in their order.
func (t *talk) sendAll(ctx context.Context, d *p2p.Comm, dst int) error {
	rng := t.rng(d, dst)
	for seq := 0; seq < perPair; {
		tag := p2p.Tag(seq % talkTags)
		b := message(d.Rank(), seq, talkSize(rng))
		var err error
		switch rng.IntN(8) {
		case 0:
			err = d.Send(ctx, dst, tag, b)
		case 1:
			err = d.Ssend(ctx, dst, tag, b)
		case 2:
			_, err = d.Isend(dst, tag, b).Wait(ctx)
		case 3:
			_, err = d.IsendVec(dst, tag, [][]byte{b[:7], b[7:10], nil, b[10:]}).Wait(ctx)
		case 4:
			_, err = d.SendInit(dst, tag, b).Start().Wait(ctx)
		case 5:
			_, err = d.Sendrecv(ctx, dst, tag, b, p2p.ProcNull, 0, nil)
		case 6:
			err = t.sendShared(ctx, d, dst, tag, b)
		default:
			var ts []p2p.Transfer
			for ; len(ts) < 1+int(rng.Uint32()%8) && seq < perPair; seq++ {
				ts = append(ts, p2p.Transfer{Rank: dst, Tag: p2p.Tag(seq % talkTags), Buf: message(d.Rank(), seq, talkSize(rng))})
			}
			err = p2p.WaitAll(ctx, d.IsendAll(nil, ts), nil)
			seq--
		}
		if err != nil {
			return fmt.Errorf("message %d to %d: %w", seq, dst, err)
		}
		seq++
	}
	return nil
}

// sendShared sends from memory that the receiver may map.
func (t *talk) sendShared(ctx context.Context, d *p2p.Comm, dst int, tag p2p.Tag, b []byte) error {
	r, err := t.w.Alloc(len(b))
	if err != nil {
		return err
	}
	copy(r.Bytes(), b)
	return errors.Join(d.Ssend(ctx, dst, tag, r.Bytes()), r.Close())
}

// recvAll receives all messages of a round; those of a rank come in their order.
func (t *talk) recvAll(ctx context.Context, d *p2p.Comm) error {
	rng := t.rng(d, -1)
	r := &talkReceiver{d: d, rng: rng, next: make([]int, d.Size()), left: perPair * (d.Size() - 1)}
	for r.left > 0 {
		if err := r.some(ctx); err != nil {
			return fmt.Errorf("with %d messages to come: %w", r.left, err)
		}
	}
	return nil
}

type talkReceiver struct {
	d    *p2p.Comm
	rng  *rand.Rand
	next []int // by source
	left int
}

const talkMost = sendHeader + 200<<10

// check requires that a message is the next one of its source.
func (r *talkReceiver) check(st p2p.Status, buf []byte, err error) error {
	if err != nil {
		return err
	}
	src, seq, ok := parseMessage(buf, st)
	if !ok || src >= len(r.next) || seq != r.next[src] || st.Tag != p2p.Tag(seq%talkTags) {
		return fmt.Errorf("got %+v, message %d of rank %d, right %v; next: %v", st, seq, src, ok, r.next)
	}
	r.next[src]++
	r.left--
	return nil
}

// source is any rank, or one of which something is to come.
func (r *talkReceiver) source() (src int, tag p2p.Tag) {
	src = r.rng.IntN(len(r.next))
	if src == r.d.Rank() || r.next[src] == perPair || r.rng.IntN(2) == 0 {
		return p2p.AnySource, p2p.AnyTag
	}
	if r.rng.IntN(2) == 0 {
		return src, p2p.AnyTag
	}
	return src, p2p.Tag(r.next[src] % talkTags)
}

// some receives at least one message.
func (r *talkReceiver) some(ctx context.Context) error {
	d, buf := r.d, make([]byte, talkMost)
	src, tag := r.source()
	switch r.rng.IntN(8) {
	case 0:
		st, err := d.Recv(ctx, src, tag, buf)
		return r.check(st, buf, err)
	case 1:
		st, err := d.Probe(ctx, src, tag)
		if err == nil {
			st, err = d.Recv(ctx, st.Source, st.Tag, buf)
		}
		return r.check(st, buf, err)
	case 2:
		m, err := d.Mprobe(ctx, src, tag)
		return r.message(ctx, m, err)
	case 3:
		for ctx.Err() == nil {
			if m, ok, err := d.Improbe(src, tag); ok || err != nil {
				return r.message(ctx, m, err)
			}
		}
		return ctx.Err()
	case 4:
		got, st, err := d.RecvAlloc(ctx, src, tag, talkMost)
		return r.check(st, got, err)
	case 5:
		st, err := d.IrecvVec(src, tag, [][]byte{buf[:5], buf[5:40], buf[40:]}).Wait(ctx)
		return r.check(st, buf, err)
	case 6:
		st, err := d.RecvInit(src, tag, buf).Start().Wait(ctx)
		return r.check(st, buf, err)
	}
	return r.window(ctx)
}

// message receives one that a probe has matched.
func (r *talkReceiver) message(ctx context.Context, m *p2p.Message, err error) error {
	if err != nil {
		return err
	}
	if b := m.Bytes(); b != nil && r.rng.IntN(2) == 0 {
		defer m.Discard()
		return r.check(m.Status(), b, nil)
	}
	buf := make([]byte, talkMost)
	st, err := m.Recv(ctx, buf)
	return r.check(st, buf, err)
}

// window has several receives at once, of whatever comes: they match in the order of posting, but
// for one that a device had matched with a message of a rank outside d, whom that cost its life.
func (r *talkReceiver) window(ctx context.Context) error {
	n := min(r.left, 1+r.rng.IntN(8))
	ts := make([]p2p.Transfer, n)
	for i := range ts {
		ts[i] = p2p.Transfer{Rank: p2p.AnySource, Tag: p2p.AnyTag, Buf: make([]byte, talkMost)}
	}
	ends := make([]p2p.Completion, n)
	if err := r.ended(ctx, r.d.IrecvAll(nil, ts), ends); err != nil {
		return err
	}
	if len(r.d.World().Failed()) != 0 {
		slices.SortFunc(ends, func(a, b p2p.Completion) int { return cmp.Compare(r.number(ts, a), r.number(ts, b)) })
	}
	for _, e := range ends {
		if err := r.check(e.Status, ts[e.Data].Buf, e.Err); err != nil {
			return err
		}
	}
	return nil
}

// number is that of a received message at its source.
func (r *talkReceiver) number(ts []p2p.Transfer, e p2p.Completion) int {
	_, seq, _ := parseMessage(ts[e.Data].Buf, e.Status)
	return seq
}

// ended waits for requests, together or by a Queue.
func (r *talkReceiver) ended(ctx context.Context, reqs []p2p.Request, ends []p2p.Completion) error {
	if r.rng.IntN(2) == 0 {
		return p2p.WaitAll(ctx, reqs, ends)
	}
	q := r.d.World().NewQueue(len(reqs))
	defer q.Close()
	for i, req := range reqs {
		req.Notify(q, uint64(i))
	}
	var one [1]p2p.Completion
	for range reqs {
		if _, err := q.Wait(ctx, one[:]); err != nil {
			return err
		}
		ends[one[0].Data] = one[0]
	}
	return nil
}

// cancelAll ends receives that nothing comes for.
func (t *talk) cancelAll(d *p2p.Comm) error {
	for range 10 {
		r := d.Irecv(p2p.AnySource, tagNothing, make([]byte, 64))
		r.Cancel()
		<-r.Done()
		if _, _, err := r.Test(); !errors.Is(err, p2p.ErrCanceled) {
			return fmt.Errorf("a canceled receive: %w", err)
		}
	}
	return nil
}
