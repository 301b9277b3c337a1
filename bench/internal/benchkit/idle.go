package benchkit

import (
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/tagmatch/tagmatch/p2p"
)

// pause is between two messages for a rank that is to be asleep.
const pause = 20 * time.Millisecond

// Idle measures the processor time of a rank that waits in Recv, and how long it takes from the
// Send for which it wakes up until Recv returns; beside that, by turns, how long it takes by a
// futex that the ranks share. Its messages are times.
type Idle struct {
	Common
	For time.Duration
}

// NewIdle has the defaults.
func NewIdle() *Idle { return &Idle{Common: Common{Sizes: Sizes{8}, Iters: 200}} }

// Register adds the flags.
func (i *Idle) Register(fs *flag.FlagSet) {
	i.Common.Register(fs)
	fs.DurationVar(&i.For, "for", 10*time.Second, "how long a rank waits")
}

// Faults of the flags.
func (i *Idle) Faults() []error { return append(i.Common.Faults(), SomeTime(i.For)...) }

// SomeTime are the faults of a flag -for.
func SomeTime(d time.Duration) []error {
	if d > 0 {
		return nil
	}
	return []error{fmt.Errorf("-for is %v: give some time, such as 10s", d)}
}

// Run measures a size.
func (i *Idle) Run(s *Session, size, iters int) error { return s.Report(i.measure(s, size, iters)) }

func (i *Idle) measure(s *Session, size, iters int) (Result, error) {
	p, err := s.page()
	if err != nil {
		return Result{}, fmt.Errorf("measuring wake-ups: %w", err)
	}
	w := waiter{s: s, page: p, buf: make([]byte, max(size, 8)), messages: NewHistogram(), futexes: NewHistogram()}
	pct, err := w.asleep(i.For)
	for n := 0; err == nil && n < iters; n++ {
		if err = w.message(pause); err == nil {
			err = w.futex(uint32(n))
		}
	}
	if err = errors.Join(err, p.close()); err != nil {
		return Result{}, err
	}
	r := s.Result("idle", len(w.buf), iters, time.Duration(w.messages.Mean()*float64(iters)))
	r.Percentiles(w.messages, 1)
	r.Wakes = &Wakes{CPUPct: pct, ForS: i.For.Seconds(), WakeUs: r.P50Us,
		FutexUs: float64(w.futexes.ValueAtQuantile(50)) / 1e3, FutexP99Us: float64(w.futexes.ValueAtQuantile(99)) / 1e3}
	r.OverFutex = r.WakeUs / max(r.FutexUs, 1e-3)
	return r, s.sync()
}

// Wakes is the result of Idle, beside its Result, whose times are from a Send to the end of the
// Recv that slept.
type Wakes struct {
	CPUPct     float64 `json:"cpu_pct" col:"cpu %"` // of one processor, by the rank that waited
	ForS       float64 `json:"for_s"`
	WakeUs     float64 `json:"wake_us"` // medians
	FutexUs    float64 `json:"futex_us" col:"futex p50"`
	FutexP99Us float64 `json:"futex_p99_us" col:"futex p99"`
	OverFutex  float64 `json:"over_futex" col:"over futex"`
}

// waiter is one rank's side; the first rank waits.
type waiter struct {
	s        *Session
	page     *page
	buf      []byte
	messages *hdrhistogram.Histogram
	futexes  *hdrhistogram.Histogram
}

// page maps one page in both ranks.
func (s *Session) page() (*page, error) {
	ctx := context.Background()
	if !s.First {
		name, _, err := s.World.RecvAlloc(ctx, tagNumber, p2p.MaskExact, 1<<10)
		if err != nil {
			return nil, err
		}
		p, err := openPage(string(name))
		if err != nil {
			return nil, err
		}
		return p, s.sync()
	}
	p, name, err := newPage()
	if err != nil {
		return nil, err
	}
	if err = s.World.Send(ctx, s.Peer, tagNumber, []byte(name)); err != nil {
		return nil, err
	}
	return p, s.sync()
}

// asleep is the first rank's processor time, in percent, while it waits for so long.
func (i *waiter) asleep(d time.Duration) (float64, error) {
	before, err := processorTime()
	if err != nil {
		return 0, err
	}
	start := time.Now()
	if err = i.message(d); err != nil {
		return 0, err
	}
	elapsed := time.Since(start)
	after, err := processorTime()
	return 100 * float64(after-before) / float64(elapsed), err
}

// message is one that the first rank waits for, sent some time after it has begun.
func (i *waiter) message(after time.Duration) error {
	if err := i.s.sync(); err != nil { // a rank may be held up for longer than the other pauses
		return err
	}
	ctx := context.Background()
	if !i.s.First {
		time.Sleep(after)
		sent, err := now()
		if err != nil {
			return err
		}
		binary.LittleEndian.PutUint64(i.buf, uint64(sent))
		return i.s.World.Send(ctx, i.s.Peer, data, i.buf)
	}
	if _, err := i.s.World.Recv(ctx, data, p2p.MaskExact, i.buf); err != nil {
		return err
	}
	return took(i.messages, int64(binary.LittleEndian.Uint64(i.buf)))
}

// futex is the same by the word of the page, which is n and becomes n+1.
func (i *waiter) futex(n uint32) error {
	if err := i.s.sync(); err != nil { // the word must not move on before it is looked at
		return err
	}
	if !i.s.First {
		time.Sleep(pause)
		sent, err := now()
		if err != nil {
			return err
		}
		i.page.stamp.Store(int64(sent))
		return i.page.wake(n + 1)
	}
	if err := i.page.await(n); err != nil {
		return err
	}
	return took(i.futexes, i.page.stamp.Load())
}

// took records the time since sent.
func took(h *hdrhistogram.Histogram, sent int64) error {
	at, err := now()
	if err != nil {
		return err
	}
	if err = h.RecordValue(int64(at) - sent); err != nil {
		return fmt.Errorf("it was sent at %d and received at %d ns: %w", sent, at, err)
	}
	return nil
}
