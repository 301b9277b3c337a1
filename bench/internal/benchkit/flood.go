package benchkit

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tagmatch/tagmatch/p2p"
)

// The ranks of a flood: rank 0 is flooded, the next ones send, and the last, the herald, tells rank
// 0 when all messages were posted.
const (
	floodSenders = 3
	floodHerald  = 1 + floodSenders
	FloodRanks   = floodHerald + 1
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

// Flood is the result of a flood, beside its Result, whose msg_s is from the first send to the last
// receive.
type Flood struct {
	While          string  `json:"while"`
	Senders        int     `json:"senders"`
	Limit          int64   `json:"unexpected_limit"`
	Bound          int64   `json:"bound"`    // Limit and FloodConstant
	Base           int64   `json:"base_rss"` // before the flood
	Peak           int64   `json:"peak_rss"` // until the flooded rank begins to receive the flood
	EndPeak        int64   `json:"end_peak_rss"`
	Within         bool    `json:"within_bound"` // see judge
	UnexpectedPeak int64   `json:"unexpected_peak"`
	EndUnexpected  int64   `json:"end_unexpected_peak"`
	HeldUp         uint64  `json:"held_up"` // of all senders together
	WantsSent      uint64  `json:"wants_sent"`
	WantsReceived  uint64  `json:"wants_received"`
	Released       uint64  `json:"released"`
	PostS          float64 `json:"post_s"` // until everything was posted
	DrainS         float64 `json:"drain_s"`
}

// flood is one rank's side.
type flood struct {
	s     *Session
	size  int
	n     int // messages of all senders
	bytes [floodSenders][]byte
}

// FloodRank floods rank 0 with n messages of one size.
func FloodRank(s *Session, size, n int) (Result, error) {
	f := &flood{s: s, size: size, n: n}
	for i := range f.bytes {
		f.bytes[i] = make([]byte, size+payloads)
		Fill(f.bytes[i], i)
	}
	switch rank := s.World.Rank(); rank {
	case 0:
		return f.flooded()
	case floodHerald:
		return Result{}, f.herald()
	default:
		return Result{}, f.send(rank - 1)
	}
}

// FloodMessages is the default number of messages of a size.
func FloodMessages(size int) int {
	if size > 16<<10 {
		return 1e6
	}
	return 1e7
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
	if f.s.While == WhileRecv {
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
	base, _, err := Resident()
	if err != nil {
		return Result{}, err
	}
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
	_, peak, err := Resident()
	if err != nil {
		return Result{}, err
	}
	if err := f.drain(); err != nil {
		return Result{}, err
	}
	elapsed := time.Since(start)
	r := f.s.Result("flood", f.size, f.n, elapsed-settle)
	r.Flood = &Flood{While: f.s.While, Senders: floodSenders, Base: base, Peak: peak, UnexpectedPeak: before.UnexpectedPeak,
		PostS: (posted - settle).Seconds(), DrainS: (elapsed - posted).Seconds()}
	return r, r.Flood.finish(f.s)
}

// meanwhile is what rank 0 does until everything was posted.
func (f *flood) meanwhile() error {
	ctx, w := context.Background(), f.s.World
	if f.s.While == WhileRecv {
		_, err := w.Recv(ctx, tagStop, p2p.MaskExact, nil)
		return err
	}
	told := w.Comm().Irecv(floodHerald, tagPosted, nil) // no message of the flood can match it
	if !f.s.Manual {
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
		if f.s.While == WhileIdle {
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
	if _, r.EndPeak, err = Resident(); err != nil {
		return err
	}
	if err = s.World.Comm().Send(context.Background(), floodHerald, tagEnd, nil); err != nil {
		return err
	}
	m := s.World.Metrics()
	r.WantsSent, r.EndUnexpected = m.WantsSent, m.UnexpectedPeak
	if r.Limit, err = s.Flags.bytes("UnexpectedLimit"); err != nil {
		return err
	}
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

// bytes is the value in effect of a field of p2p.Config, which the environment may have set.
func (f *Flags) bytes(field string) (int64, error) {
	c := f.config()
	settings, err := c.Effective(os.Getenv)
	if err != nil {
		return 0, err
	}
	i := slices.IndexFunc(settings, func(s p2p.Setting) bool { return s.Field == field })
	if settings[i].Value == "none" {
		return 0, nil
	}
	return strconv.ParseInt(strings.TrimSuffix(settings[i].Value, " bytes"), 10, 64)
}
