package soak

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tagmatch/tagmatch/bench/internal/benchkit"
	"github.com/tagmatch/tagmatch/p2p"
)

// Options of Run, the same on all ranks.
type Options struct {
	Size  int           // of the largest message, bytes
	Count int           // messages from each rank to each other, at most, in each exchange of a round
	For   time.Duration // after which no round begins
}

// patience is how long a round may take: far longer than it does.
const patience = 5 * time.Minute

// lastWords is how long a rank whose round does not end lets the others say the same.
const lastWords = time.Second

// Tags of the rounds themselves, in the World's Comm.
const (
	tagBegin p2p.Tag = 1 + iota
	tagEnd
)

// totals of all ranks.
type totals struct{ benchkit.Soak }

// Run is one rank's part. All ranks of w call it; the result is that of all on rank 0, and this
// rank's own on others. The error is the first that this rank saw: others may wait for it then.
func Run(w *p2p.World, o Options) (benchkit.Soak, error) {
	var t totals
	end := time.Now().Add(o.For)
	for {
		seed := rand.Uint64() | 1
		if t.Rounds > 0 && time.Now().After(end) {
			seed = 0
		}
		r := &round{Options: o, w: w, base: context.Background(), seed: seed}
		if err := t.play(r); err != nil || r.seed == 0 {
			return t.Soak, err
		}
		t.add(&r.others)
	}
}

// play plays a round, and counts what this rank has had of it, also where it fails.
func (t *totals) play(r *round) error {
	start := time.Now()
	err := r.run()
	t.add(&r.counts)
	if err != nil {
		return fmt.Errorf("rank %d, round %d: %w", r.w.Rank(), t.Rounds, err)
	}
	if r.seed != 0 {
		t.Longest = max(t.Longest, time.Since(start))
		t.Rounds++
	}
	return nil
}

func (t *totals) add(c *counts) {
	t.Messages += c.messages.Load()
	t.Bytes += c.bytes.Load()
	t.Canceled += c.canceled.Load()
	t.Withdrawn += c.withdrawn.Load()
}

// round is one rank's side of a round.
type round struct {
	Options
	w     *p2p.World
	base  context.Context // what the round has besides its time
	watch *watch          // nil: nobody is to die
	seed  uint64          // 0: it is no round, but the end
	slow  bool            // this rank pauses
	lost  atomic.Bool     // a part of it ended with the loss of a rank

	counts        // of this rank
	others counts // on rank 0, at the end
}

// counts are totals in the making.
type counts struct {
	messages, bytes, canceled, withdrawn atomic.Uint64
}

func (c *counts) all() []*atomic.Uint64 {
	return []*atomic.Uint64{&c.messages, &c.bytes, &c.canceled, &c.withdrawn}
}

// run runs a round whose seed rank 0 has chosen. Rank 0 knows the counts of the others then.
func (r *round) run() error {
	if err := r.begin(); err != nil || r.seed == 0 {
		return err
	}
	ctx, cancel := context.WithTimeout(r.base, patience)
	defer cancel()
	r.slow = r.seed>>8%uint64(2*r.w.Size()) == uint64(r.w.Rank())
	err := r.exchange(ctx)
	if err == nil {
		err = r.nothingLeft()
	}
	if err == nil {
		err = r.end(ctx)
	}
	if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		err = errors.Join(fmt.Errorf("not over after %v: %w", patience, err), r.w.Dump(os.Stderr))
		time.Sleep(lastWords)
	}
	return err
}

// begin has all ranks know the seed. It waits for the slowest in the round before.
func (r *round) begin() error {
	ctx, c := r.base, r.w.Comm()
	var b [8]byte
	if c.Rank() != 0 {
		_, err := c.Recv(ctx, 0, tagBegin, b[:])
		r.seed = binary.LittleEndian.Uint64(b[:])
		return err
	}
	binary.LittleEndian.PutUint64(b[:], r.seed)
	for dst := 1; dst < c.Size(); dst++ {
		if err := c.Send(ctx, dst, tagBegin, b[:]); err != nil {
			return err
		}
	}
	return nil
}

// end has rank 0 know what all ranks have counted.
func (r *round) end(ctx context.Context) error {
	c := r.w.Comm()
	b := make([]byte, 8*len(r.all()))
	if c.Rank() != 0 {
		for i, n := range r.all() {
			binary.LittleEndian.PutUint64(b[8*i:], n.Load())
		}
		return c.Send(ctx, 0, tagEnd, b)
	}
	for src := 1; src < c.Size(); src++ {
		if _, err := c.Recv(ctx, src, tagEnd, b); err != nil {
			return err
		}
		for i, n := range r.others.all() {
			n.Add(binary.LittleEndian.Uint64(b[8*i:]))
		}
	}
	return nil
}

// nothingLeft requires that no message of an exchange is left. No other rank begins another round.
func (r *round) nothingLeft() error {
	st, ok, err := r.w.Iprobe(0, p2p.MaskExact&^0xfff)
	for sub := range p2p.Tag(subs) {
		if err == nil && !ok {
			st, ok, err = r.w.Comm().Iprobe(p2p.AnySource, (&exchange{}).tag(sub)) // the first exchange
		}
	}
	if ok {
		err = fmt.Errorf("a message was not received, or came twice: %+v", st)
	}
	return err
}

// exchanges are the parts of a round, by name.
var exchanges = []struct {
	name string
	send func(x *exchange) error // nil: recv does both
	recv func(x *exchange) error
}{
	{"named", (*exchange).sendNamed, (*exchange).recvNamed},
	{"any source", (*exchange).sendTagged, (*exchange).recvAnySource},
	{"any tag", (*exchange).sendInTurn, (*exchange).recvAnyTag},
	{"probed", (*exchange).sendInTurn, (*exchange).recvProbed},
	{"group", nil, (*exchange).group},
	{"canceled", nil, (*exchange).cancel},
	{"withdrawn", (*exchange).sendBriefly, (*exchange).recvBriefly},
}

// exchange runs all exchanges, and returns when this rank has its part of each. One that ends with
// the loss of a rank leaves the others running: what depends on that rank ends by itself.
func (r *round) exchange(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for i, e := range exchanges {
		start := func(side string, f func(x *exchange) error) {
			x := &exchange{round: r, w: r.w, ctx: ctx, number: i, rng: rand.New(rand.NewPCG(rand.Uint64(), 0)), scratch: make([]byte, r.Size)}
			g.Go(func() error {
				err := r.watch.pardon(f(x))
				if errors.Is(err, errLost) {
					r.lost.Store(true)
					return nil
				}
				if err != nil {
					return fmt.Errorf("exchange %q, %s: %w", e.name, side, err)
				}
				return nil
			})
		}
		if e.send != nil {
			start("sender", e.send)
		}
		start("receiver", e.recv)
	}
	err := g.Wait()
	if err == nil && r.lost.Load() {
		err = errLost
	}
	return err
}

// count counts a message.
func (r *round) count(size int) {
	r.messages.Add(1)
	r.bytes.Add(uint64(size))
}

// exchange is one goroutine's side of an exchange.
type exchange struct {
	round   *round
	w       *p2p.World
	ctx     context.Context // of the round
	number  int
	rng     *rand.Rand // different each time
	scratch []byte     // as long as the largest message
}

// tag is a tag of the exchange: the low bits are sub.
func (x *exchange) tag(sub p2p.Tag) p2p.Tag { return p2p.Tag(x.number+1)<<8 | sub }

// anyTag matches all tags of the exchange.
const anyTag = p2p.MaskExact &^ 0xff

// pause lets others run, or sleeps, now and then.
func (x *exchange) pause() {
	switch n := x.rng.IntN(256); {
	case n == 0, x.round.slow && n < 64:
		time.Sleep(time.Duration(x.rng.IntN(2000)) * time.Microsecond)
	case n < 32:
		runtime.Gosched()
	}
}
