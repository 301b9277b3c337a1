package benchkit

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/tagmatch/tagmatch/p2p"
)

// IdleFor is how long a rank is idle by default.
const IdleFor = 10 * time.Second

// pause is between two messages for a rank that is to be asleep.
const pause = 20 * time.Millisecond

// Idle measures the processor time of a rank that waits in Recv, and how long it takes from the
// Send for which it wakes up until Recv returns; beside that, by turns, how long it takes by a
// futex that the ranks share.
func Idle(s *Session, size, iters int) (Result, error) {
	p, err := s.page()
	if err != nil {
		return Result{}, fmt.Errorf("measuring wake-ups: %w", err)
	}
	i := idle{s: s, page: p, buf: make([]byte, max(size, 8)), messages: NewHistogram(), futexes: NewHistogram()}
	pct, err := i.asleep()
	for n := 0; err == nil && n < iters; n++ {
		if err = i.message(pause); err == nil {
			err = i.futex(uint32(n))
		}
	}
	if err = errors.Join(err, p.close()); err != nil {
		return Result{}, err
	}
	r := s.Result("idle", len(i.buf), iters, time.Duration(i.messages.Mean()*float64(iters)))
	r.Percentiles(i.messages, 1)
	r.Wakes = &Wakes{CPUPct: pct, ForS: s.For.Seconds(), WakeUs: r.P50Us,
		FutexUs: float64(i.futexes.ValueAtQuantile(50)) / 1e3, FutexP99Us: float64(i.futexes.ValueAtQuantile(99)) / 1e3}
	r.OverFutex = r.WakeUs / max(r.FutexUs, 1e-3)
	return r, s.sync()
}

// Wakes is the result of Idle, beside its Result, whose times are from a Send to the end of the
// Recv that slept.
type Wakes struct {
	CPUPct     float64 `json:"cpu_pct"` // of one processor, by the rank that waited
	ForS       float64 `json:"for_s"`
	WakeUs     float64 `json:"wake_us"` // medians
	FutexUs    float64 `json:"futex_us"`
	FutexP99Us float64 `json:"futex_p99_us"`
	OverFutex  float64 `json:"over_futex"`
}

// idle is one rank's side; the first rank waits.
type idle struct {
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

// asleep is the first rank's processor time, in percent, while it waits for as long as -for says.
func (i *idle) asleep() (float64, error) {
	before, err := processorTime()
	if err != nil {
		return 0, err
	}
	start := time.Now()
	if err = i.message(i.s.For); err != nil {
		return 0, err
	}
	elapsed := time.Since(start)
	after, err := processorTime()
	return 100 * float64(after-before) / float64(elapsed), err
}

// message is one that the first rank waits for, sent some time after it has begun.
func (i *idle) message(after time.Duration) error {
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
func (i *idle) futex(n uint32) error {
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

var idleTable = layout{
	of: func(r *Result) bool { return r.Wakes != nil },
	note: func(r *Result) string {
		return fmt.Sprintf("%s; processor time of a rank that waits for %v s; us from a Send until the Recv that slept has returned, and by a futex",
			wires(r), r.ForS)
	},
	columns: []column{sizeColumn, roundsColumn("wake-ups", 10),
		number("cpu %", 8, 3, func(r *Result) float64 { return r.CPUPct }), p50Column, p99Column,
		number("futex p50", 10, 3, func(r *Result) float64 { return r.FutexUs }),
		number("futex p99", 10, 3, func(r *Result) float64 { return r.FutexP99Us }),
		number("over futex", 10, 2, func(r *Result) float64 { return r.OverFutex })},
}
