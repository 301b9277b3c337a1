package benchkit

import (
	"bytes"
	"cmp"
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

// The ranks of a flood: rank 0 is flooded, the next ones send, and the last, the herald, tells rank
// 0 when all messages were posted.
const (
	floodSenders = 3
	floodHerald  = 1 + floodSenders
	floodRanks   = floodHerald + 1
)

// What the flooded rank does until everything has been posted.
const (
	WhileIdle = "idle" // it does not receive; then from the last message to the first
	WhileRecv = "recv" // it waits in a Recv for the last message; then from the first to the last
	whileBoth = "both" // both, one job after the other
)

// FloodConstant is the flooded rank's resident memory beyond its UnexpectedLimit: the program, Go's
// runtime, rings and receive buffers of four peers, and one message of each in flight.
const FloodConstant = 64 << 20

// floodSendLimit is more than any number of messages needs.
const floodSendLimit = 1 << 40

// Tags of a flood. Those of its messages are smaller: sender and number, see tag.
const (
	tagBegin p2p.Tag = 1 + iota // Comm: rank 0 has looked at its memory
	tagPosted
	tagCounts
	tagEnd                    // to the herald: Shutdown is bounded in time, receiving all is not
	tagStop p2p.Tag = 1 << 61 // raw, as the flood is: a Recv waits for it among the flood
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

var whiles = []string{WhileIdle, WhileRecv, whileBoth}

// NewFlooding has the defaults.
func NewFlooding() *Flooding {
	return &Flooding{Common: Common{Sizes: Sizes{0, 64, 1 << 10, 64 << 10}}}
}

// Register adds the flags.
func (f *Flooding) Register(fs *flag.FlagSet) {
	f.Common.Register(fs)
	fs.IntVar(&f.Iters, "messages", 0, "the same as -iters")
	fs.StringVar(&f.While, "while", whileBoth, "`what` the flooded rank does until everything is posted: "+strings.Join(whiles, ", "))
}

// Faults of the flags, and a want of memory: the kernel would kill some process.
func (f *Flooding) Faults() []error {
	errs := f.Common.Faults()
	if !slices.Contains(whiles, f.While) {
		errs = append(errs, fmt.Errorf("-while is %q: give one of %s", f.While, strings.Join(whiles, ", ")))
	}
	if launch.Launched() {
		if f.While == whileBoth || len(f.Sizes) != 1 {
			errs = append(errs, errors.New("a process has one peak of memory: under a launcher give one of -sizes, and -while idle or recv"))
		}
		return errs
	}
	for _, size := range f.Sizes {
		errs = append(errs, f.fits(size))
	}
	return slices.DeleteFunc(errs, func(err error) bool { return err == nil })
}

// floodRecords is the memory of a message besides its bytes, in all processes together: its
// operation, request and index at the sender, its record at the receiver, and garbage.
const floodRecords = 1 << 10

// fits returns an error if the host lacks the memory for a size.
func (f *Flooding) fits(size int) error {
	free, err := available()
	if err != nil {
		return err
	}
	all, err := inEffect(f.Config())
	if err != nil {
		return nil // it is told with the other settings
	}
	each, n := int64(floodRecords), int64(cmp.Or(f.Iters, f.Messages(size, "")))
	// Larger messages stay with their senders, which share buffers.
	if f.While != WhileRecv && size <= max(all.EagerLimit, 0) {
		each += int64(size)
	}
	if n*each > free {
		return fmt.Errorf("%d messages of %s take up to %d MiB of memory, %d are available: give fewer by -messages", n, sizeName(size), n*each>>20, free>>20)
	}
	return nil
}

// Config lets senders send any number of messages.
func (f *Flooding) Config() p2p.Config {
	c := f.Common.Config()
	c.SendLimit = floodSendLimit
	return c
}

// Ranks of a flood.
func (f *Flooding) Ranks() (started, measuring int) { return floodRanks, floodRanks }

// Jobs are one for each peak to measure.
func (f *Flooding) Jobs() (jobs []Job) {
	for _, device := range either(f.device, "auto", "shm", "tcp") {
		for _, transport := range either(f.transport, "auto", "rc", "tmsrq") {
			for _, size := range f.Sizes {
				for _, while := range either(f.While, whileBoth, WhileIdle, WhileRecv) {
					jobs = append(jobs, Job{floodRanks, []string{"-device", device, "-transport", transport, "-sizes", strconv.Itoa(size), "-while", while}})
				}
			}
		}
	}
	return jobs
}

// Messages of all senders.
func (f *Flooding) Messages(size int, _ string) int {
	if size > 16<<10 {
		return 1e6
	}
	return 1e7
}

// Run floods with n messages of one size.
func (f *Flooding) Run(s *Session, size, n int) error {
	all, err := inEffect(f.Config())
	if err != nil {
		return err
	}
	return s.Report((&flood{s: s, while: f.While, manual: f.manual, limit: max(all.UnexpectedLimit, 0), size: size, n: n}).play())
}

// Flood is the result of a flood, beside its Result, whose msg_s is from the first send to the last
// receive. Memory is in bytes.
type Flood struct {
	While          string  `json:"while" col:"while"`
	Limit          int64   `json:"unexpected_limit" col:"limit MiB"`
	Bound          int64   `json:"bound" col:"bound MiB"`   // Limit and FloodConstant
	Peak           int64   `json:"peak_rss" col:"peak MiB"` // until the flooded rank begins to receive the flood
	EndPeak        int64   `json:"end_peak_rss" col:"end MiB"`
	Within         bool    `json:"within_bound" col:"within"` // see judge
	UnexpectedPeak int64   `json:"unexpected_peak"`
	EndUnexpected  int64   `json:"end_unexpected_peak"`
	HeldUp         uint64  `json:"held_up" col:"held up"` // of all senders together
	WantsReceived  uint64  `json:"wants_received" col:"wants"`
	Released       uint64  `json:"released" col:"released"`
	PostS          float64 `json:"post_s"` // until everything was posted
	DrainS         float64 `json:"drain_s"`
}

// flood is one rank's side.
type flood struct {
	s      *Session
	while  string
	manual bool
	limit  int64
	size   int
	n      int // messages of all senders
	bytes  [floodSenders][]byte
}

func (f *flood) play() (Result, error) {
	for i := range f.bytes {
		f.bytes[i] = make([]byte, f.size+payloads)
		Fill(f.bytes[i], i)
	}
	switch rank := f.s.World.Rank(); rank {
	case 0:
		return f.flooded()
	case floodHerald:
		return Result{}, f.herald()
	default:
		return Result{}, f.send(rank - 1)
	}
}

func (f *flood) count(i int) int { return (f.n + floodSenders - 1 - i) / floodSenders }

// message is number seq of sender i.
func (f *flood) message(i, seq int) (p2p.Tag, []byte) {
	return p2p.Tag(i)<<40 | p2p.Tag(seq), f.bytes[i][seq%payloads:][:f.size]
}

func (f *flood) send(i int) error {
	ctx, w := context.Background(), f.s.World
	if _, err := w.Comm().Recv(ctx, 0, tagBegin, nil); err != nil {
		return err
	}
	reqs := make([]p2p.Request, f.count(i))
	for seq := range reqs {
		tag, buf := f.message(i, seq)
		reqs[seq] = w.Isend(0, tag, buf)
	}
	f.quiet()
	if err := w.Comm().Send(ctx, floodHerald, tagPosted, nil); err != nil {
		return err
	}
	if err := p2p.WaitAll(ctx, reqs, nil); err != nil {
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
	for last := sent(); ; {
		time.Sleep(settle)
		now := sent()
		if now == last {
			return
		}
		last = now
	}
}

// herald tells rank 0 that all senders have posted everything.
func (f *flood) herald() error {
	ctx, w := context.Background(), f.s.World
	for i := range floodSenders {
		if _, err := w.Comm().Recv(ctx, 1+i, tagPosted, nil); err != nil {
			return err
		}
	}
	var err error
	if f.while == WhileRecv {
		err = w.Send(ctx, 0, tagStop, nil)
	} else {
		err = w.Comm().Send(ctx, 0, tagPosted, nil)
	}
	if err == nil {
		_, err = w.Comm().Recv(ctx, 0, tagEnd, nil)
	}
	return err
}

func (f *flood) flooded() (Result, error) {
	start := time.Now()
	for i := range floodSenders {
		if err := f.s.World.Comm().Send(context.Background(), 1+i, tagBegin, nil); err != nil {
			return Result{}, err
		}
	}
	if err := f.meanwhile(); err != nil {
		return Result{}, err
	}
	posted, before := time.Since(start), f.s.World.Metrics()
	peak, err := peakMemory()
	if err != nil {
		return Result{}, err
	}
	if err := f.drain(); err != nil {
		return Result{}, err
	}
	elapsed := time.Since(start)
	r := f.s.Result("flood", f.size, f.n, elapsed-settle)
	r.Flood = &Flood{While: f.while, Limit: f.limit, Peak: peak, UnexpectedPeak: before.UnexpectedPeak,
		PostS: (posted - settle).Seconds(), DrainS: (elapsed - posted).Seconds()}
	return r, r.Flood.finish(f.s)
}

// meanwhile is what rank 0 does until everything was posted.
func (f *flood) meanwhile() error {
	ctx, w := context.Background(), f.s.World
	if f.while == WhileRecv {
		_, err := w.Recv(ctx, tagStop, p2p.MaskExact, nil)
		return err
	}
	told := w.Comm().Irecv(floodHerald, tagPosted, nil) // no message of the flood can match it
	if !f.manual {
		<-told.Done() // outside the library, as a rank that computes
	}
	_, err := told.Wait(ctx)
	return err
}

// drain receives everything and compares it with what was sent.
func (f *flood) drain() error {
	buf := make([]byte, f.size)
	longest := f.count(0)
	for k := range longest {
		seq := k
		if f.while == WhileIdle {
			seq = longest - 1 - k
		}
		for i := range floodSenders {
			if seq >= f.count(i) {
				continue
			}
			if err := f.receive(i, seq, buf); err != nil {
				return fmt.Errorf("message %d of rank %d: %w", seq, 1+i, err)
			}
		}
	}
	return nil
}

func (f *flood) receive(i, seq int, buf []byte) error {
	tag, want := f.message(i, seq)
	st, err := f.s.World.Recv(context.Background(), tag, p2p.MaskExact, buf)
	switch {
	case err != nil:
		return err
	case st.Source != 1+i || st.Tag != tag || st.Len != int64(len(want)):
		return fmt.Errorf("got %d bytes with tag %#x from rank %d, want %d bytes with tag %#x", st.Len, st.Tag, st.Source, len(want), tag)
	case !bytes.Equal(buf, want):
		return errors.New("it is not what was sent")
	}
	return nil
}

// finish adds the final values and judges.
func (r *Flood) finish(s *Session) error {
	for i := range floodSenders {
		var b [24]byte
		if _, err := s.World.Comm().Recv(context.Background(), 1+i, tagCounts, b[:]); err != nil {
			return err
		}
		r.HeldUp += binary.LittleEndian.Uint64(b[:])
		r.WantsReceived += binary.LittleEndian.Uint64(b[8:])
		r.Released += binary.LittleEndian.Uint64(b[16:])
	}
	var err error
	if r.EndPeak, err = peakMemory(); err != nil {
		return err
	}
	if err = s.World.Comm().Send(context.Background(), floodHerald, tagEnd, nil); err != nil {
		return err
	}
	r.EndUnexpected = s.World.Metrics().UnexpectedPeak
	r.judge()
	return nil
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

// verdict is an error if the peak exceeded the bound; other tests, whose Flood is nil, have none.
func (r *Flood) verdict() error {
	if r == nil || r.Within {
		return nil
	}
	return fmt.Errorf("the flooded rank had %d bytes in memory, its bound is %d bytes", r.judged(), r.Bound)
}
