package benchkit

import (
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"slices"
	"strings"

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

// Depth measures half round trips while both ranks have queued entries that match nothing of them.
type Depth struct {
	Verified
	Depths Counts
	Kind   string
}

// NewDepth has the defaults.
func NewDepth() *Depth {
	d := &Depth{Depths: Counts{16, 10_000, 100_000, 1_000_000}}
	d.Sizes = Sizes{8}
	return d
}

// Register adds the flags.
func (d *Depth) Register(fs *flag.FlagSet) {
	d.Verified.Register(fs)
	fs.Var(&d.Depths, "depths", "`numbers` of queued entries, separated by commas")
	fs.StringVar(&d.Kind, "kind", kindAll, "`what` the queued entries are: "+strings.Join(kinds, ", "))
}

// Faults of the flags.
func (d *Depth) Faults() []error {
	errs := d.Verified.Faults()
	if !slices.Contains(kinds, d.Kind) {
		errs = append(errs, fmt.Errorf("-kind is %q: give one of %s", d.Kind, strings.Join(kinds, ", ")))
	}
	return errs
}

// Config has room for the messages of each case. A message takes a record, its bytes and perhaps an
// index, and a peer that wants all memory gets half of it.
func (d *Depth) Config() p2p.Config {
	c := d.Verified.Config()
	c.UnexpectedLimit = 64<<20 + int64(slices.Max(d.Depths))*1024
	return c
}

// Run measures a size.
func (d *Depth) Run(s *Session, size, iters int) error {
	for _, kind := range either(d.Kind, kindAll, kinds[:len(kinds)-1]...) {
		for _, n := range d.Depths {
			if err := s.Report(newQueue(s, kind, n).measure(newLoop(s, size, iters, d.Check))); err != nil {
				return err
			}
		}
	}
	return nil
}

// Tags of the first queued entry.
const (
	queued     p2p.Tag = 1 << 40
	queuedComm p2p.Tag = 1 << 16
)

// queuedBytes is the size of a queued message, and of a receive's buffer.
const queuedBytes = 8

// queue is one rank's side.
type queue struct {
	s    *Session
	kind string
	n    int
	tag  p2p.Tag       // of the first entry
	reqs []p2p.Request // the queued receives
}

func newQueue(s *Session, kind string, n int) *queue {
	if kind == KindAnySource {
		return &queue{s: s, kind: kind, n: n, tag: queuedComm}
	}
	return &queue{s: s, kind: kind, n: n, tag: queued}
}

func (d *queue) measure(l *loop) (Result, error) {
	if err := d.fill(); err != nil {
		return Result{}, err
	}
	body := bounce
	if d.kind == KindAnySource {
		body = bounceComm
	}
	r, err := d.s.rounds("depth", l, 2, body)
	if err != nil {
		return r, err
	}
	r.Depth, r.Kind = d.n, d.kind
	if err := d.empty(); err != nil {
		return r, err
	}
	return r, d.s.sync() // what the peer queues next must not find a receive
}

// fill queues the entries on both ranks.
func (d *queue) fill() error {
	if d.kind == KindUnexpected {
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
func (d *queue) post(i int, buf []byte) p2p.Request {
	tag := d.tag + p2p.Tag(i)
	switch d.kind {
	case KindAnySource:
		return d.s.World.Comm().Irecv(p2p.AnySource, tag, buf)
	case KindMasks:
		return d.s.World.Irecv(tag, p2p.MaskExact&^(1<<(i%16)), buf)
	}
	return d.s.World.Irecv(tag, p2p.MaskExact, buf)
}

// send has each rank send the entries of the other.
func (d *queue) send() error {
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
func (d *queue) check() error {
	if err := d.s.sync(); err != nil {
		return err
	}
	m := d.s.World.Metrics()
	got := m.PostedNow
	if d.kind == KindUnexpected {
		got = m.UnexpectedNow
	}
	if got < d.n {
		return fmt.Errorf("%d entries are queued, want %d", got, d.n)
	}
	return nil
}

// empty ends the entries.
func (d *queue) empty() error {
	if d.kind == KindUnexpected {
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
func (d *queue) receive() error {
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
func bounceComm(w *p2p.World, l *loop) error {
	ctx, c, peer := context.Background(), w.Comm(), 1-w.Rank()
	for range l.rounds {
		if w.Rank() == 0 {
			if err := c.Send(ctx, peer, ping, l.out); err != nil {
				return err
			}
		}
		if _, err := c.Recv(ctx, peer, ping, l.in); err != nil {
			return err
		}
		if w.Rank() == 1 {
			if err := c.Send(ctx, peer, ping, l.out); err != nil {
				return err
			}
		}
	}
	return nil
}
