package benchkit

import (
	"errors"
	"fmt"
	"time"

	"github.com/tagmatch/tagmatch/p2p"
)

// Streams is a test of a stream from rank 0 to rank 1 with the loop body: it runs on both ranks and
// ranges over s.Batches. At the end of a batch rank 0 knows that rank 1 has received it.
func Streams(test string, body func(w *p2p.World, s *Stream) error) Test {
	return func(s *Session, size, iters int) (Result, error) {
		st := newStream(s, size, iters)
		if err := body(s.World, st); err != nil {
			return Result{}, err
		}
		if st.err != nil {
			return Result{}, st.err
		}
		r := s.Result(test, size, iters, st.elapsed)
		r.Window = s.Window
		if s.Goroutines != nil {
			r.Goroutines = len(st.parts)
		}
		if bytes := float64(size) * float64(iters); bytes > 0 {
			r.CPUPerGB = st.cpu.Seconds() / (bytes / 1e9)
		}
		return r, nil
	}
}

// Stream verifies and times batches of messages of one size on one rank.
type Stream struct {
	Window int // messages in flight, of each pair of goroutines

	s       *Session
	iters   int
	parts   []*part
	elapsed time.Duration // of iters messages
	cpu     time.Duration // processor time of both ranks for them, on the first
	err     error         // why the batches ended early
}

// part is what one goroutine of this rank moves to or from its like. A loop that is not of several
// goroutines has one.
type part struct {
	window, pair int
	first        bool
	n            int           // messages of this batch
	reqs         []p2p.Request // a window of zero requests between batches
	shared       []byte        // the buffer of every message whose payload is not verified
	pool         []byte        // -cold: what buffers are cut from instead; else nil
	bufs         [][]byte      // those of a window of messages whose payloads are; else nil
	err          error
}

func newStream(s *Session, size, iters int) *Stream {
	st := &Stream{Window: s.Window, s: s, iters: iters, parts: make([]*part, s.pairs())}
	for i := range st.parts {
		st.parts[i] = &part{window: s.Window, pair: i, first: s.First, shared: make([]byte, size), reqs: make([]p2p.Request, s.Window)}
		if s.Cold && size > 0 {
			st.parts[i].pool = coldPool(size, s.Window, len(st.parts))
		}
	}
	return st
}

// Batches is an iterator over the numbers of messages to move: verified ones, warm-up, and timed
// ones.
func (s *Stream) Batches(yield func(n int) bool) {
	batch := func(n int) bool {
		for i, p := range s.parts {
			p.n = (n + len(s.parts) - 1 - i) / len(s.parts)
		}
		if !yield(n) {
			return false
		}
		for _, p := range s.parts {
			p.settle()
			s.err = errors.Join(s.err, p.err)
		}
		return s.err == nil
	}
	s.verify(true)
	if !batch(min(s.Window*len(s.parts), s.iters) + len(s.parts)) {
		return
	}
	s.verify(s.s.Check)
	if batch(warmUp(s.iters)) {
		s.timed(batch)
	}
}

// verify has the payloads of the next batches verified, or not.
func (s *Stream) verify(on bool) {
	for _, p := range s.parts {
		p.bufs = nil
		for range s.Window {
			if on {
				p.bufs = append(p.bufs, make([]byte, len(p.shared)))
			}
		}
	}
}

// timed is the batch that is measured.
func (s *Stream) timed(batch func(n int) bool) {
	if s.err = s.s.sync(); s.err != nil {
		return
	}
	var before, after time.Duration
	if before, s.err = processorTime(); s.err != nil {
		return
	}
	start := time.Now()
	if !batch(s.iters) {
		return
	}
	s.elapsed = time.Since(start)
	if after, s.err = processorTime(); s.err == nil {
		s.cpu, s.err = s.s.total(after - before)
	}
}

// Buf is the buffer of message i of a batch; message i-Window, which used it before, must have
// ended. Unverified messages all share one buffer, as in other benchmarks of this kind, and the
// memory stays in the cache, unless -cold was given.
func (s *Stream) Buf(i int) []byte { return s.parts[0].buf(i) }

func (s *part) buf(i int) []byte {
	switch size := len(s.shared); {
	case s.bufs != nil:
		return s.own(i)
	case s.pool != nil:
		at := i % (len(s.pool) / pages(size)) * pages(size)
		return s.pool[at:][:size:size]
	}
	return s.shared
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
func (s *part) own(i int) []byte {
	if i >= s.window {
		s.verify(i - s.window)
	}
	buf := s.bufs[i%s.window]
	if s.first {
		Fill(buf, payload(s.pair, i))
	} else {
		clear(buf)
	}
	return buf
}

// settle verifies the last messages of a batch.
func (s *part) settle() {
	for i := max(0, s.n-s.window); i < s.n; i++ {
		s.verify(i)
	}
}

// verify compares what was received as message i with its payload.
func (s *part) verify(i int) {
	if s.bufs == nil || s.first || s.err != nil {
		return
	}
	Fill(s.shared, payload(s.pair, i))
	if err := Damage(s.bufs[i%s.window], s.shared); err != nil {
		s.err = fmt.Errorf("message %d of %d bytes %w", i, len(s.shared), err)
	}
}
