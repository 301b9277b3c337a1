package benchkit

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/tagmatch/tagmatch/p2p"
)

// Kinds of queued entries, none of which matches what is measured.
const (
	KindPosted     = "posted"     // receives of other tags
	KindUnexpected = "unexpected" // messages of other tags
	KindAnySource  = "anysource"  // receives of a Comm, of other tags and from any source
	KindMasks      = "masks"      // receives of other tags, with 16 masks by turns
	kindAll        = "all"        // one after the other
)

var kinds = []string{KindPosted, KindUnexpected, KindAnySource, KindMasks, kindAll}

// DepthCases are the kinds with each depth.
func DepthCases(f Flags) []Flags {
	var cases []Flags
	for _, kind := range either(f.Kind, kindAll, kinds[:len(kinds)-1]...) {
		f.Kind = kind
		cases = append(cases, casesOf(f, func(f *Flags) *Counts { return &f.Depths })...)
	}
	return cases
}

// Depth measures half round trips while both ranks have queued entries that match nothing of them.
func Depth(s *Session, size, iters int) (Result, error) {
	d := &depth{s: s, n: s.Depths[0], tag: queued}
	if s.Kind == KindAnySource {
		d.tag = queuedComm
	}
	if err := d.fill(); err != nil {
		return Result{}, err
	}
	body := bounce
	if s.Kind == KindAnySource {
		body = bounceComm
	}
	r, err := s.rounds("depth", size, iters, 2, body)
	if err != nil {
		return r, err
	}
	r.Depth, r.Kind = d.n, s.Kind
	if err := d.empty(); err != nil {
		return r, err
	}
	return r, s.sync() // what the peer queues next must not find a receive
}

// Tags of the first queued entry.
const (
	queued     p2p.Tag = 1 << 40
	queuedComm p2p.Tag = 1 << 16
)

// queuedBytes is the size of a queued message, and of a receive's buffer.
const queuedBytes = 8

// depth is one rank's side.
type depth struct {
	s    *Session
	n    int
	tag  p2p.Tag       // of the first entry
	reqs []p2p.Request // the queued receives
}

// depthLimit has room for the messages of each case. A message takes a record, its bytes and
// perhaps an index, and a peer that wants all memory gets half of it.
func (f *Flags) depthLimit() int64 {
	most := 0
	for _, n := range f.Depths {
		most = max(most, n)
	}
	return 64<<20 + int64(most)*1024
}

// fill queues the entries on both ranks.
func (d *depth) fill() error {
	if d.s.Kind == KindUnexpected {
		return d.send()
	}
	d.reqs = make([]p2p.Request, d.n)
	bufs := make([]byte, queuedBytes*d.n)
	for i := range d.reqs {
		d.reqs[i] = d.post(i, bufs[queuedBytes*i:][:queuedBytes])
	}
	return d.check()
}

// post queues receive i.
func (d *depth) post(i int, buf []byte) p2p.Request {
	tag := d.tag + p2p.Tag(i)
	switch d.s.Kind {
	case KindAnySource:
		return d.s.World.Comm().Irecv(p2p.AnySource, tag, buf)
	case KindMasks:
		return d.s.World.Irecv(tag, p2p.MaskExact&^(1<<(i%16)), buf)
	}
	return d.s.World.Irecv(tag, p2p.MaskExact, buf)
}

// send has each rank send the entries of the other.
func (d *depth) send() error {
	buf := make([]byte, queuedBytes)
	for i := range d.n {
		binary.LittleEndian.PutUint64(buf, uint64(i))
		if err := d.s.World.Send(context.Background(), d.s.Peer, d.tag+p2p.Tag(i), buf); err != nil {
			return err
		}
	}
	return d.check()
}

// check returns, on both ranks, when the entries are queued on both.
func (d *depth) check() error {
	if err := d.s.sync(); err != nil {
		return err
	}
	m := d.s.World.Metrics()
	got := m.PostedNow
	if d.s.Kind == KindUnexpected {
		got = m.UnexpectedNow
	}
	if got < d.n {
		return fmt.Errorf("%d entries are queued, want %d", got, d.n)
	}
	return nil
}

// empty ends the entries.
func (d *depth) empty() error {
	if d.s.Kind == KindUnexpected {
		return d.receive()
	}
	for i := range d.reqs {
		d.reqs[i].Cancel()
	}
	for i := range d.reqs {
		if _, err := d.reqs[i].Wait(context.Background()); !errors.Is(err, p2p.ErrCanceled) {
			return fmt.Errorf("queued receive %d was not cancelled: %v", i, err)
		}
	}
	return nil
}

// receive receives the queued messages.
func (d *depth) receive() error {
	buf := make([]byte, queuedBytes)
	for i := range d.n {
		if _, err := d.s.World.Recv(context.Background(), d.tag+p2p.Tag(i), p2p.MaskExact, buf); err != nil {
			return err
		}
		if got := binary.LittleEndian.Uint64(buf); got != uint64(i) {
			return fmt.Errorf("queued message %d was received as message %d", got, i)
		}
	}
	return nil
}

// bounceComm is bounce with a Comm, whose receives name their source.
func bounceComm(w *p2p.World, l *Loop) error {
	ctx, c, peer := context.Background(), w.Comm(), 1-w.Rank()
	for range l.Rounds {
		if w.Rank() == 0 {
			if err := c.Send(ctx, peer, ping, l.Out); err != nil {
				return err
			}
		}
		if _, err := c.Recv(ctx, peer, ping, l.In); err != nil {
			return err
		}
		if w.Rank() == 1 {
			if err := c.Send(ctx, peer, ping, l.Out); err != nil {
				return err
			}
		}
	}
	return nil
}

var depthTable = layout{
	of: func(r *Result) bool { return r.Depth > 0 },
	note: func(r *Result) string {
		return wires(r) + "; half round trip in us behind queued entries that do not match, and over that with the first depth of the same kind"
	},
	columns: []column{sizeColumn,
		{"kind", 10, func(r *Result) string { return r.Kind }},
		whole("depth", 10, func(r *Result) int { return r.Depth }),
		roundsColumn("round trips", 11), avgColumn, p50Column, p99Column, overColumn},
	over: func(r *Result) (string, float64) { return fmt.Sprint(r.Kind, r.Size), r.AvgUs },
}
