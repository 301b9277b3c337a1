package jobtest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"time"

	"github.com/tagmatch/tagmatch/p2p"
	"github.com/tagmatch/tagmatch/verbs/soft/softtest"
)

const (
	pesterers = 4           // goroutines of a rank that talk with the hostile one
	neverTag  = p2p.Tag(99) // of no message with a hostile rank
)

// pesterer has operations of all kinds with a rank, of which one of the two is hostile.
type pesterer struct {
	w    *p2p.World
	peer int
	rng  *rand.Rand
	buf  []byte
	what string // the operation under way
}

func newPesterer(w *p2p.World, peer int, seed uint64) *pesterer {
	return &pesterer{w: w, peer: peer, rng: rand.New(rand.NewPCG(seed, uint64(w.Rank()))), buf: make([]byte, 256<<10)}
}

// run has operations until stop is closed, or the peer lost.
func (p *pesterer) run(ctx context.Context, stop <-chan struct{}) error {
	for {
		select {
		case <-stop:
			return nil
		default:
		}
		err := p.step(ctx)
		if lost, ok := errors.AsType[*p2p.PeerError](err); ok && slices.Equal(lost.Ranks, []int{p.peer}) {
			return nil
		}
		if err != nil && !slices.ContainsFunc(pestered, func(e error) bool { return errors.Is(err, e) }) {
			return fmt.Errorf("%s: with a hostile rank: %w", p.what, err)
		}
	}
}

// pestered are the errors that operations with a hostile rank may have: those of the caller's own
// doing, and those that a rank which is well may cause too.
var pestered = []error{context.DeadlineExceeded, p2p.ErrCanceled, p2p.ErrTruncated, p2p.ErrFull, p2p.ErrFault, p2p.ErrMaybeDelivered,
	p2p.ErrInactive} // the last of a Message that the hostile rank took back

// On NICs a completion of the device does not say by which connection the message came: one in the
// name of no rank ends the receive that it has matched.
func init() {
	if os.Getenv(softtest.NICs) != "" {
		pestered = append(pestered, p2p.ErrProtocol)
	}
}

// step has one operation, which ends by itself or after some time.
func (p *pesterer) step(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(1+p.rng.IntN(100))*time.Millisecond)
	defer cancel()
	steps := []struct {
		what string
		do   func(ctx context.Context) error
	}{
		{"send", p.send}, {"send", p.send}, {"isend", p.isend}, {"isendall", p.sendMany}, {"isendall", p.sendMany}, {"isendvec", p.sendParts}, {"send of shared memory", p.sendShared},
		{"recv", p.recv}, {"recv", p.recv}, {"irecv", p.irecv}, {"irecvall", p.recvMany}, {"irecvvec", p.recvParts}, {"recvany", p.recvAny},
		{"mprobe", p.mprobe}, {"probe", p.probe}, {"recvalloc", p.recvAlloc}, {"sendrecv", p.sendrecv}, {"queue", p.queue},
	}
	s := steps[p.rng.IntN(len(steps))]
	p.what = s.what
	return s.do(ctx)
}

// some is so many bytes of the buffer.
func (p *pesterer) some() []byte {
	n := p.rng.IntN(64)
	switch p.rng.IntN(8) {
	case 0:
		n = p.rng.IntN(len(p.buf))
	case 1, 2:
		n = p.rng.IntN(8 << 10)
	}
	return p.buf[:n]
}

func (p *pesterer) tag() p2p.Tag { return p2p.Tag(p.rng.IntN(4)) }

// wanted is the tag of a receive.
func (p *pesterer) wanted() p2p.Tag {
	if p.rng.IntN(2) == 0 {
		return p2p.AnyTag
	}
	return p.tag()
}

func (p *pesterer) send(ctx context.Context) error {
	send := []func(context.Context, int, p2p.Tag, []byte) error{p.w.Comm().Send, p.w.Comm().Send, p.w.Comm().Ssend, p.w.Send}[p.rng.IntN(4)]
	return send(ctx, p.peer, p.tag(), p.some())
}

// sendShared sends from memory that the peer may map.
func (p *pesterer) sendShared(ctx context.Context) error {
	r, err := p.w.Alloc(1 + p.rng.IntN(len(p.buf)))
	if err != nil {
		return err
	}
	return errors.Join(p.w.Comm().Send(ctx, p.peer, p.tag(), r.Bytes()), r.Close())
}

// end waits for a request, some of which it cancels or leaves.
func (p *pesterer) end(ctx context.Context, r p2p.Request) error {
	switch p.rng.IntN(4) {
	case 0:
		r.Cancel()
	case 1:
		for range 10 {
			if _, done, err := r.Test(); done {
				return err
			}
		}
	}
	_, err := r.Wait(ctx)
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) { // it goes on
		r.Cancel()
		<-r.Done()
		_, _, err = r.Test()
	}
	return err
}

func (p *pesterer) isend(ctx context.Context) error {
	c := p.w.Comm()
	send := []func(int, p2p.Tag, []byte) p2p.Request{c.Isend, c.Issend, p.w.Isend}[p.rng.IntN(3)]
	return p.end(ctx, send(p.peer, p.tag(), p.some()))
}

func (p *pesterer) sendParts(ctx context.Context) error {
	return p.end(ctx, p.w.Comm().IsendVec(p.peer, p.tag(), [][]byte{p.some(), p.some()}))
}

func (p *pesterer) recvParts(ctx context.Context) error {
	return p.end(ctx, p.w.Comm().IrecvVec(p.peer, p.wanted(), [][]byte{make([]byte, p.rng.IntN(100)), make([]byte, len(p.buf))}))
}

// sendMany and recvMany have several operations at once.
func (p *pesterer) sendMany(ctx context.Context) error {
	var ts []p2p.Transfer
	for range 1 + p.rng.IntN(16) {
		ts = append(ts, p2p.Transfer{Rank: p.peer, Tag: p.tag(), Buf: p.some()})
	}
	return p.endAll(ctx, p.w.Comm().IsendAll(nil, ts))
}

func (p *pesterer) recvMany(ctx context.Context) error {
	var ts []p2p.Transfer
	for range 1 + p.rng.IntN(16) {
		ts = append(ts, p2p.Transfer{Rank: p.peer, Tag: p.wanted(), Buf: make([]byte, 8<<10)})
	}
	return p.endAll(ctx, p.w.Comm().IrecvAll(nil, ts))
}

func (p *pesterer) endAll(ctx context.Context, reqs []p2p.Request) (err error) {
	for _, r := range reqs {
		if e := p.end(ctx, r); e != nil && !errors.Is(err, p2p.ErrPeerLost) {
			err = e
		}
	}
	return err
}

func (p *pesterer) recv(ctx context.Context) error {
	_, err := p.w.Comm().Recv(ctx, p.peer, p.wanted(), p.buf)
	return err
}

func (p *pesterer) irecv(ctx context.Context) error {
	return p.end(ctx, p.w.Comm().Irecv(p.peer, p.wanted(), make([]byte, p.rng.IntN(len(p.buf)))))
}

// recvAny receives a raw message of any rank, which only this one sends.
func (p *pesterer) recvAny(ctx context.Context) error {
	_, err := p.w.Recv(ctx, p.tag(), p2p.MaskExact, p.buf)
	return err
}

func (p *pesterer) mprobe(ctx context.Context) error {
	c := p.w.Comm()
	m, ok, err := c.Improbe(p.peer, p.wanted())
	if !ok && err == nil {
		m, err = c.Mprobe(ctx, p.peer, p.wanted())
	}
	if err != nil {
		return err
	}
	switch p.rng.IntN(3) {
	case 0:
		m.Discard()
		return nil
	case 1:
		return p.end(ctx, m.Irecv(p.buf))
	}
	_, err = m.Recv(ctx, p.buf)
	return err
}

func (p *pesterer) probe(ctx context.Context) error {
	c := p.w.Comm()
	if _, _, err := c.Iprobe(p.peer, p.wanted()); err != nil {
		return err
	}
	_, err := c.Probe(ctx, p.peer, p.wanted())
	return err
}

func (p *pesterer) recvAlloc(ctx context.Context) error {
	_, _, err := p.w.Comm().RecvAlloc(ctx, p.peer, p.wanted(), int64(len(p.buf)))
	return err
}

func (p *pesterer) sendrecv(ctx context.Context) error {
	_, err := p.w.Comm().Sendrecv(ctx, p.peer, p.tag(), p.some(), p.peer, p.wanted(), make([]byte, 8<<10))
	return err
}

func (p *pesterer) queue(ctx context.Context) error {
	q := p.w.NewQueue(4)
	defer q.Close()
	for i := range uint64(4) {
		p.w.Comm().Irecv(p.peer, p.wanted(), make([]byte, 8<<10)).Notify(q, i)
	}
	var ends [4]p2p.Completion
	n, err := q.Wait(ctx, ends[:])
	for _, e := range ends[:n] {
		err = errors.Join(err, e.Err)
	}
	q.Cancel()
	return err
}
