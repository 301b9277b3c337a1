package benchkit

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/tagmatch/tagmatch/p2p"
)

// Tags of this package's own messages; those of a test are smaller.
const (
	tagSync p2p.Tag = 1<<62 + iota
	tagNumber
)

// Those between ranks that measure and ranks that wait, in the Comm.
const (
	tagGreet p2p.Tag = 1<<30 + iota
	tagDismiss
)

// Session is one of the ranks that measure.
type Session struct {
	World *p2p.World
	Peer  int  // the other of two ranks
	First bool // rank 0: begins, measures and reports
	Left  bool // the test has ended the World itself

	report  *reporter
	verdict error // of the test on its results
}

// joinTimeout bounds the start and the end of a job; the test between them is not bounded.
const joinTimeout = time.Minute

// join makes this process a rank.
func join(t Test, report *reporter) (*Session, error) {
	c := t.common()
	switch {
	case c.procs > 0:
		runtime.GOMAXPROCS(c.procs)
	case c.async == p2p.AsyncOn:
		runtime.GOMAXPROCS(max(2, runtime.GOMAXPROCS(0))) // the device works on a thread of its own
	}
	ctx, cancel := context.WithTimeout(context.Background(), joinTimeout)
	defer cancel()
	w, err := p2p.Init(ctx, t.Config())
	if err != nil {
		return nil, err
	}
	_, least := t.Ranks()
	if least == Everyone {
		least = 2
	}
	if w.Size() < least {
		w.Close()
		return nil, fmt.Errorf("the size of this job is %d, measuring takes %d ranks: start it with %[2]d or more, or plainly, without a launcher", w.Size(), least)
	}
	return &Session{World: w, Peer: 1 - w.Rank(), First: w.Rank() == 0, report: report}, nil
}

// Report prints a result of the first rank, unless there is an error.
func (s *Session) Report(r Result, err error) error {
	if err != nil || !s.First {
		return err
	}
	r.Matched = s.World.Metrics().Offload.Matched
	return s.report.print(&r)
}

// leave is the orderly end.
func (s *Session) leave() error {
	if s.Left {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), joinTimeout)
	defer cancel()
	return s.World.Shutdown(ctx)
}

// greet connects each rank that waits with each that measures, in both directions. Both call it,
// with the ranks of the other kind.
func (s *Session) greet(from, to int) error {
	ctx, c := context.Background(), s.World.Comm()
	for rank := from; rank < to; rank++ {
		if _, err := c.Sendrecv(ctx, rank, tagGreet, nil, rank, tagGreet, nil); err != nil {
			return fmt.Errorf("greeting rank %d: %w", rank, err)
		}
	}
	return nil
}

// park waits in Recv, as a rank that has nothing to do, until dismiss.
func (s *Session) park(measuring int) error {
	if err := s.greet(0, measuring); err != nil {
		return err
	}
	_, err := s.World.Comm().Recv(context.Background(), 0, tagDismiss, nil)
	return err
}

// dismiss ends the waiting of the ranks that do not measure; the first rank calls it.
func (s *Session) dismiss(measuring int) error {
	var err error
	for rank := measuring; rank < s.World.Size(); rank++ {
		err = errors.Join(err, s.World.Comm().Send(context.Background(), rank, tagDismiss, nil))
	}
	return err
}

// sync returns when both ranks have called it.
func (s *Session) sync() error {
	ctx := context.Background()
	send := s.World.Isend(s.Peer, tagSync, nil)
	if _, err := s.World.Recv(ctx, tagSync, p2p.MaskExact, nil); err != nil {
		return err
	}
	_, err := send.Wait(ctx)
	return err
}

// total adds the second rank's number to the first's, on the first.
func (s *Session) total(mine time.Duration) (time.Duration, error) {
	ctx := context.Background()
	var buf [8]byte
	if !s.First {
		binary.LittleEndian.PutUint64(buf[:], uint64(mine))
		return mine, s.World.Send(ctx, s.Peer, tagNumber, buf[:])
	}
	_, err := s.World.Recv(ctx, tagNumber, p2p.MaskExact, buf[:])
	return mine + time.Duration(binary.LittleEndian.Uint64(buf[:])), err
}

// device names the wire between the two ranks, for the report.
func (s *Session) device() string { return s.World.Metrics().Device }

// Result fills in what all tests report. elapsed is the time of one message times iters.
func (s *Session) Result(test string, size, iters int, elapsed time.Duration) Result {
	seconds := elapsed.Seconds()
	return Result{
		Test: test, Device: s.device(), Transport: s.World.Metrics().Transport, Size: size, Iters: iters,
		AvgUs: seconds * 1e6 / float64(iters),
		MBs:   float64(size) * float64(iters) / seconds / 1e6,
		MsgS:  float64(iters) / seconds,
	}
}

// Fill writes the payload of message seq into buf. No byte is 0, so that a missing one shows in a
// cleared buffer.
func Fill(buf []byte, seq int) {
	x := uint64(seq)*0x9e3779b97f4a7c15 + 1
	for i := 0; i < len(buf); i += 8 {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		var word [8]byte
		binary.LittleEndian.PutUint64(word[:], x|0x0101010101010101)
		copy(buf[i:], word[:])
	}
}

// payload numbers the messages of all pairs of goroutines.
func payload(pair, seq int) int { return pair<<32 + seq }

// Damage describes the first difference between two payloads of the same length, nil if there is
// none.
func Damage(got, want []byte) error {
	if bytes.Equal(got, want) {
		return nil
	}
	i := 0
	for got[i] == want[i] {
		i++
	}
	return fmt.Errorf("arrived damaged: byte %d is %#x, want %#x", i, got[i], want[i])
}
