package benchkit

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tagmatch/tagmatch/internal/launch"
	"github.com/tagmatch/tagmatch/p2p"
)

// floodSenders flood rank 0.
const floodSenders = 3

// What the flooded rank does until no more comes.
const (
	WhileIdle = "idle" // it does not receive; then from the last message to the first
	WhileRecv = "recv" // it waits in Recv for what nobody sends; then from the first to the last
	whileBoth = "both" // both, one job after the other
)

var whiles = []string{WhileIdle, WhileRecv, whileBoth}

// FloodConstant is the flooded rank's resident memory beyond its UnexpectedLimit: the program, Go's
// runtime, rings and receive buffers of its peers, and one message of each in flight.
const FloodConstant = 64 << 20

// floodSendLimit is more than any number of messages needs.
const floodSendLimit = 1 << 40

// Tags of a flood. Those of its messages are smaller: sender and number, see message.
const (
	tagBegin p2p.Tag = 1 + iota // Comm: the name of a page, in which senders count themselves
	tagCounts
	tagNobody p2p.Tag = 1 << 61 // raw, as the flood is
)

// settle is how long a sender sees no message leave before it assumes that none will.
const settle = 200 * time.Millisecond

// payloads is the number of different contents of a sender's messages. All are parts of one buffer.
const payloads = 4093

// Flooding floods rank 0 with messages of one size while it does not receive, or waits for
// something else. A process has one peak of memory, so each line of its table is a job.
type Flooding struct {
	Common
	While string
}

// NewFlooding has the defaults.
func NewFlooding() *Flooding {
	return &Flooding{Common: Common{Sizes: Sizes{0, 64, 1 << 10, 64 << 10}}}
}

// Register adds the flags.
func (f *Flooding) Register(fs *flag.FlagSet) {
	f.Common.Register(fs)
	fs.StringVar(&f.While, "while", whileBoth, "`what` the flooded rank does until no more comes: "+strings.Join(whiles, ", "))
}

// Faults of the flags.
func (f *Flooding) Faults() []error {
	errs := f.Common.Faults()
	if !slices.Contains(whiles, f.While) {
		errs = append(errs, fmt.Errorf("-while is %q: give one of %s", f.While, strings.Join(whiles, ", ")))
	}
	if launch.Launched() && (f.While == whileBoth || len(f.Sizes) != 1) {
		errs = append(errs, errors.New("a process has one peak of memory: under a launcher give one of -sizes, and -while idle or recv"))
	}
	return errs
}

// Config lets senders send any number of messages.
func (f *Flooding) Config() p2p.Config {
	c := f.Common.Config()
	c.SendLimit = floodSendLimit
	return c
}

// Ranks of a flood.
func (f *Flooding) Ranks() (started, measuring int) { return 1 + floodSenders, 1 + floodSenders }

// Jobs are one for each peak to measure.
func (f *Flooding) Jobs() (jobs []Job) {
	for _, device := range either(f.device, "auto", "shm", "tcp") {
		for _, transport := range either(f.transport, "auto", "rc", "tmsrq") {
			for _, size := range f.Sizes {
				for _, while := range either(f.While, whileBoth, WhileIdle, WhileRecv) {
					jobs = append(jobs, Job{Ranks: 1 + floodSenders,
						Args: []string{"-device", device, "-transport", transport, "-sizes", strconv.Itoa(size), "-while", while}})
				}
			}
		}
	}
	return jobs
}

// Messages of all senders.
func (f *Flooding) Messages(int, string) int { return 1e6 }

// Run floods with n messages of one size.
func (f *Flooding) Run(s *Session, size, n int) error {
	all, err := inEffect(f.Config())
	if err != nil {
		return err
	}
	side := &flood{s: s, wait: f.While == WhileRecv || f.manual, n: n, buf: make([]byte, size),
		result: Flood{While: f.While, Limit: max(all.UnexpectedLimit, 0)}}
	for i := range side.bytes {
		side.bytes[i] = make([]byte, size+payloads)
		Fill(side.bytes[i], i)
	}
	if !s.First {
		return side.send(s.World.Rank() - 1)
	}
	r, err := side.flooded()
	if err == nil {
		s.verdict = errors.Join(s.verdict, ofSize(size, r.Flood.verdict()))
	}
	return s.Report(r, err)
}

// Flood is the result of a flood, beside its Result, whose msg_s is that of receiving afterwards.
// Memory is in bytes.
type Flood struct {
	While          string `json:"while" col:"while"`
	Limit          int64  `json:"unexpected_limit" col:"limit MiB"`
	Bound          int64  `json:"bound" col:"bound MiB"`   // Limit and FloodConstant
	Peak           int64  `json:"peak_rss" col:"peak MiB"` // until the flooded rank begins to receive the flood
	EndPeak        int64  `json:"end_peak_rss" col:"end MiB"`
	Within         bool   `json:"within_bound" col:"within"` // see judge
	UnexpectedPeak int64  `json:"unexpected_peak"`
	EndUnexpected  int64  `json:"end_unexpected_peak"`
	HeldUp         uint64 `json:"held_up" col:"held up"` // of all senders together
	WantsReceived  uint64 `json:"wants_received" col:"wants"`
	Released       uint64 `json:"released" col:"released"`
}

// flood is one rank's side.
type flood struct {
	s      *Session
	wait   bool // the flooded rank is in Recv meanwhile; with manual progress nothing comes else
	n      int  // messages of all senders
	bytes  [floodSenders][]byte
	buf    []byte
	result Flood
}

func (f *flood) count(i int) int { return (f.n + floodSenders - 1 - i) / floodSenders }

// message is number seq of sender i.
func (f *flood) message(i, seq int) (p2p.Tag, []byte) {
	return p2p.Tag(i)<<40 | p2p.Tag(seq), f.bytes[i][seq%payloads:][:len(f.buf)]
}

func (f *flood) send(i int) error {
	ctx, w := context.Background(), f.s.World
	var name [64]byte
	st, err := w.Comm().Recv(ctx, 0, tagBegin, name[:])
	if err != nil {
		return err
	}
	p, err := openPage(string(name[:st.Len]))
	if err != nil {
		return err
	}
	reqs := make([]p2p.Request, f.count(i))
	for seq := range reqs {
		tag, buf := f.message(i, seq)
		reqs[seq] = w.Isend(0, tag, buf)
	}
	f.quiet()
	p.word.Add(1)
	if err := errors.Join(p.close(), p2p.WaitAll(ctx, reqs, nil)); err != nil {
		return err
	}
	m := w.Metrics()
	var b []byte
	for _, n := range []uint64{m.HeldUp, m.WantsReceived, m.Released} {
		b = binary.LittleEndian.AppendUint64(b, n)
	}
	return w.Comm().Send(ctx, 0, tagCounts, b)
}

// quiet returns when no more of this sender's messages leave.
func (f *flood) quiet() {
	sent := func() uint64 {
		m := f.s.World.Metrics()
		return m.EagerSent + m.RndvSent
	}
	for now := sent(); ; {
		before := now
		time.Sleep(settle)
		if now = sent(); now == before {
			return
		}
	}
}

func (f *flood) flooded() (Result, error) {
	w, r := f.s.World, &f.result
	p, name, err := newPage()
	for i := 0; i < floodSenders && err == nil; i++ {
		err = w.Comm().Send(context.Background(), 1+i, tagBegin, []byte(name))
	}
	if err != nil {
		return Result{}, err
	}
	err = errors.Join(f.meanwhile(p), p.close())
	r.UnexpectedPeak = w.Metrics().UnexpectedPeak
	if err == nil {
		r.Peak, err = peakMemory()
	}
	start := time.Now()
	if err == nil {
		err = f.drain()
	}
	all := f.s.Result("flood", len(f.buf), f.n, time.Since(start))
	all.Flood = r
	return all, errors.Join(err, r.finish(w, err))
}

// meanwhile returns when all senders are quiet: all has been sent, or they are held up.
func (f *flood) meanwhile(p *page) error {
	for p.word.Load() < floodSenders {
		if !f.wait {
			time.Sleep(settle) // outside the library, as a rank that computes
		} else if err := f.nothing(); err != nil {
			return err
		}
	}
	return nil
}

// nothing waits in Recv for what nobody sends.
func (f *flood) nothing() error {
	ctx, stop := context.WithTimeout(context.Background(), settle)
	defer stop()
	if _, err := f.s.World.Recv(ctx, tagNobody, p2p.MaskExact, nil); !errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("a receive of what nobody sends has ended: %w", err)
	}
	return nil
}

// drain receives everything and compares it with what was sent.
func (f *flood) drain() error {
	longest := f.count(0)
	for k := range longest {
		seq := k
		if f.result.While == WhileIdle {
			seq = longest - 1 - k
		}
		for i := range floodSenders {
			if seq >= f.count(i) {
				continue
			}
			if err := f.receive(i, seq); err != nil {
				return fmt.Errorf("message %d of rank %d: %w", seq, 1+i, err)
			}
		}
	}
	return nil
}

func (f *flood) receive(i, seq int) error {
	tag, want := f.message(i, seq)
	st, err := f.s.World.Recv(context.Background(), tag, p2p.MaskExact, f.buf)
	switch {
	case err != nil:
		return err
	case st != p2p.Status{Source: 1 + i, Tag: tag, Len: int64(len(want))}:
		return fmt.Errorf("got %+v, want %d bytes with tag %#x", st, len(want), tag)
	case !bytes.Equal(f.buf, want):
		return errors.New("it is not what was sent")
	}
	return nil
}

// finish adds the final values and judges, unless the flood has failed.
func (r *Flood) finish(w *p2p.World, failed error) (err error) {
	for i := 0; i < floodSenders && failed == nil; i++ {
		var b [24]byte
		if _, err := w.Comm().Recv(context.Background(), 1+i, tagCounts, b[:]); err != nil {
			return err
		}
		r.HeldUp += binary.LittleEndian.Uint64(b[:])
		r.WantsReceived += binary.LittleEndian.Uint64(b[8:])
		r.Released += binary.LittleEndian.Uint64(b[16:])
	}
	r.EndPeak, err = peakMemory()
	r.EndUnexpected = w.Metrics().UnexpectedPeak
	r.judge()
	return err
}

// judge compares the peak with the bound: that of the whole flood where it was received in order,
// else that before the first receive, as the receive of the last message needs all before it.
func (r *Flood) judge() {
	r.Bound = r.Limit + FloodConstant
	r.Within = r.judged() <= r.Bound
}

func (r *Flood) judged() int64 {
	if r.While == WhileRecv {
		return r.EndPeak
	}
	return r.Peak
}

// verdict is an error if the peak exceeded the bound.
func (r *Flood) verdict() error {
	if r.Within {
		return nil
	}
	return fmt.Errorf("the flooded rank had %d bytes in memory, its bound is %d bytes", r.judged(), r.Bound)
}
