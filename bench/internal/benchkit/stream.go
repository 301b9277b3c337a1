package benchkit

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"time"

	"github.com/tagmatch/tagmatch/p2p"
)

// streamed are the flags of streams from rank 0 to rank 1.
type streamed struct {
	Verified
	Window  int
	Cold    bool
	Sliding bool
	Many    bool // a flag of Rate alone
}

// Register adds the flags.
func (f *streamed) Register(fs *flag.FlagSet) {
	f.Verified.Register(fs)
	fs.IntVar(&f.Window, "window", 64, "messages under way at once")
	fs.BoolVar(&f.Cold, "cold", false, "take another buffer for each message, from so many that none is in a cache")
	fs.BoolVar(&f.Sliding, "sliding", false, "wait for the oldest message before the next, and answer once, instead of ending windows and answering each")
}

const maxWindow = 1 << 14

// Faults of the flags.
func (f *streamed) Faults() []error {
	errs := f.Verified.Faults()
	if f.Window < 1 || f.Window > maxWindow {
		errs = append(errs, fmt.Errorf("-window is %d: give 1 to %d", f.Window, maxWindow))
	}
	return errs
}

// Bandwidth measures streams of long messages.
type Bandwidth struct{ streamed }

// NewBandwidth has the defaults.
func NewBandwidth() *Bandwidth {
	b := &Bandwidth{}
	b.Sizes = Sizes{1 << 10, 8 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20}
	return b
}

// Run measures a size.
func (b *Bandwidth) Run(s *Session, size, iters int) error {
	return s.Report(b.measure(s, "bw", size, iters, 1, (*part).move))
}

// Rate measures messages so small that their number is what counts. Each window may be posted by
// one call.
type Rate struct {
	streamed
	pairs
}

// NewRate has the defaults.
func NewRate() *Rate {
	r := &Rate{pairs: pairs{Counts{1}}}
	r.Sizes = Sizes{0, 8, 64, 512}
	return r
}

// Register adds the flags.
func (r *Rate) Register(fs *flag.FlagSet) {
	r.streamed.Register(fs)
	r.register(fs)
	fs.BoolVar(&r.Many, "many", false, "let one call post a window, instead of one call each message")
}

// Faults of the flags.
func (r *Rate) Faults() []error {
	errs := append(r.streamed.Faults(), r.faults()...)
	if r.Many && r.Sliding {
		errs = append(errs, errors.New("-many and -sliding exclude each other"))
	}
	return errs
}

// Run measures a size.
func (r *Rate) Run(s *Session, size, iters int) error {
	for _, n := range r.Goroutines {
		result, err := r.measure(s, "rate", size, iters, n, (*part).move)
		result.Goroutines = n
		if err = s.Report(result, err); err != nil {
			return err
		}
	}
	return nil
}

// part is what one goroutine of this rank moves to or from its like.
type part struct {
	window, pair int
	first        bool
	n            int           // messages of this batch
	reqs         []p2p.Request // a window of zero requests between batches
	shared       []byte        // the buffer of every message whose payload is not verified
	pool         []byte        // -cold: what buffers are cut from instead; else nil
	bufs         [][]byte      // those of a window of messages whose payloads are; else nil
	slide        bool
	many         []p2p.Transfer // a window for calls that post all of it; else nil
	answer       [4]byte
	err          error
}

func (f *streamed) part(s *Session, size, pair, n int) *part {
	p := &part{window: f.Window, pair: pair, first: s.First, slide: f.Sliding, shared: make([]byte, size), reqs: make([]p2p.Request, f.Window)}
	if f.Many {
		p.many = make([]p2p.Transfer, f.Window)
	}
	if f.Cold && size > 0 {
		p.pool = coldPool(size, f.Window, n)
	}
	return p
}

// measure has n goroutines move batches: verified messages, warm-up, and those that are timed. At
// the end of a batch rank 0 knows that rank 1 has received it.
func (f *streamed) measure(s *Session, test string, size, iters, n int, move func(p *part, w *p2p.World) error) (Result, error) {
	parts := make([]*part, n)
	for i := range parts {
		parts[i] = f.part(s, size, i, n)
	}
	batch := func(messages int, verified bool) error {
		return inParallel(n, func(i int) error {
			p := parts[i]
			p.begin((messages+n-1-i)/n, verified)
			if err := move(p, s.World); err != nil {
				return err
			}
			p.settle()
			return p.err
		})
	}
	if err := batch(min(f.Window*n, iters)+n, true); err != nil {
		return Result{}, err
	}
	if err := batch(warmUp(iters), f.Check); err != nil {
		return Result{}, err
	}
	if err := s.sync(); err != nil {
		return Result{}, err
	}
	before, err := processorTime()
	if err != nil {
		return Result{}, err
	}
	start := time.Now()
	if err := batch(iters, f.Check); err != nil {
		return Result{}, err
	}
	elapsed := time.Since(start)
	after, err := processorTime()
	if err != nil {
		return Result{}, err
	}
	cpu, err := s.total(after - before)
	r := s.Result(test, size, iters, elapsed)
	r.Window, r.Sliding = f.Window, f.Sliding
	if bytes := float64(size) * float64(iters); bytes > 0 {
		r.CPUPerGB = cpu.Seconds() / (bytes / 1e9)
	}
	return r, err
}

// begin begins a batch of n messages.
func (p *part) begin(n int, verified bool) {
	p.n, p.bufs = n, nil
	for range p.window {
		if verified {
			p.bufs = append(p.bufs, make([]byte, len(p.shared)))
		}
	}
}

// buf is the buffer of message i of a batch; message i-window, which used it before, must have
// ended. Unverified messages all share one buffer, as in other benchmarks of this kind, and the
// memory stays in the cache, unless -cold was given.
func (p *part) buf(i int) []byte {
	switch size := len(p.shared); {
	case p.bufs != nil:
		return p.own(i)
	case p.pool != nil:
		at := i % (len(p.pool) / pages(size)) * pages(size)
		return p.pool[at:][:size:size]
	}
	return p.shared
}

// coldBytes is more than caches hold, for all goroutines of a rank together.
const coldBytes = 256 << 20

// coldPool has room for a window, and is written to: memory that was never touched is all one page.
func coldPool(size, window, pairs int) []byte {
	pool := make([]byte, max(coldBytes/pairs, window*pages(size)))
	for i := 0; i < len(pool); i += pages(1) {
		pool[i] = 1
	}
	return pool
}

// pages rounds up to whole pages, so that no two buffers share one.
func pages(size int) int { return (size + 4095) &^ 4095 }

// own is a buffer with the payload of message i, or a cleared one to receive it.
func (p *part) own(i int) []byte {
	if i >= p.window {
		p.verify(i - p.window)
	}
	buf := p.bufs[i%p.window]
	if p.first {
		Fill(buf, payload(p.pair, i))
	} else {
		clear(buf)
	}
	return buf
}

// settle verifies the last messages of a batch.
func (p *part) settle() {
	for i := max(0, p.n-p.window); i < p.n; i++ {
		p.verify(i)
	}
}

// verify compares what was received as message i with its payload.
func (p *part) verify(i int) {
	if p.bufs == nil || p.first || p.err != nil {
		return
	}
	Fill(p.shared, payload(p.pair, i))
	if err := Damage(p.bufs[i%p.window], p.shared); err != nil {
		p.err = fmt.Errorf("message %d of %d bytes %w", i, len(p.shared), err)
	}
}

// post starts message i.
func (p *part) post(w *p2p.World, i int) p2p.Request {
	if w.Rank() == 0 {
		return w.Isend(1, pairTag(data, p.pair), p.buf(i))
	}
	return w.Irecv(pairTag(data, p.pair), p2p.MaskExact, p.buf(i))
}

// agree returns on rank 0 when rank 1 has received all: it sends the answer of osu_mbw_mr.
func (p *part) agree(w *p2p.World) error {
	ctx, done := context.Background(), pairTag(done, p.pair)
	if w.Rank() == 1 {
		return w.Send(ctx, 0, done, p.answer[:])
	}
	_, err := w.Recv(ctx, done, p2p.MaskExact, p.answer[:])
	return err
}

// sliding waits for the oldest message before it starts another, as ucx_perftest's tag_bw waits for
// room in its window.
func (p *part) sliding(w *p2p.World) error {
	for i := range p.n + p.window {
		r := &p.reqs[i%p.window]
		if _, err := r.Wait(context.Background()); err != nil {
			return err
		}
		*r = p2p.Request{}
		if i < p.n {
			*r = p.post(w, i)
		}
	}
	return p.agree(w)
}

// move moves a batch, by windows that end as osu_mbw_mr's do: all of one is complete, and rank 1
// answers.
func (p *part) move(w *p2p.World) error {
	if p.slide {
		return p.sliding(w)
	}
	for i := 0; i < p.n; i += p.window {
		if err := p2p.WaitAll(context.Background(), p.start(w, i, min(p.window, p.n-i)), nil); err != nil {
			return err
		}
		if err := p.agree(w); err != nil {
			return err
		}
	}
	return nil
}

// start starts n messages, of which i is the first: by a call each, or by one for all.
func (p *part) start(w *p2p.World, i, n int) []p2p.Request {
	if p.many == nil {
		for k := range n {
			p.reqs[k] = p.post(w, i+k)
		}
		return p.reqs[:n]
	}
	for k := range n {
		m := &p.many[k]
		m.Rank, m.Tag, m.Buf = 1-w.Rank(), pairTag(data, p.pair), p.buf(i+k)
	}
	if w.Rank() == 0 {
		return w.Comm().IsendAll(p.reqs[:0], p.many[:n])
	}
	return w.Comm().IrecvAll(p.reqs[:0], p.many[:n])
}
