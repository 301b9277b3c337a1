package benchkit

import (
	"fmt"
	"time"

	"github.com/tagmatch/tagmatch/p2p"
)

// Streams is a test of a stream from rank 0 to rank 1 with the loop body: it runs on both ranks and
// ranges over s.Batches. At the end of a batch rank 0 knows that rank 1 has received it.
func Streams(test string, body func(w *p2p.World, s *Stream) error) Test {
	return func(s *Session, size, iters int) (Result, error) {
		st := &Stream{Window: s.Window, s: s, iters: iters, shared: make([]byte, size)}
		if err := body(s.World, st); err != nil {
			return Result{}, err
		}
		if st.err != nil {
			return Result{}, st.err
		}
		r := s.result(test, size, iters, st.elapsed)
		r.Window = s.Window
		if bytes := float64(size) * float64(iters); bytes > 0 {
			r.CPUPerGB = st.cpu.Seconds() / (bytes / 1e9)
		}
		return r, nil
	}
}

// Stream verifies and times batches of messages of one size on one rank.
type Stream struct {
	Window int // messages in flight

	s       *Session
	iters   int
	shared  []byte        // the buffer of every message whose payload is not verified
	bufs    [][]byte      // those of a window of messages whose payloads are; else nil
	elapsed time.Duration // of iters messages
	cpu     time.Duration // processor time of both ranks for them, on the first
	err     error         // why the batches ended early
}

// Batches is an iterator over the numbers of messages to move: verified ones, warm-up, and timed
// ones.
func (s *Stream) Batches(yield func(n int) bool) {
	batch := func(n int) bool {
		if !yield(n) {
			return false
		}
		for i := max(0, n-s.Window); i < n; i++ {
			s.verify(i)
		}
		return s.err == nil
	}
	s.bufs = make([][]byte, s.Window)
	for i := range s.bufs {
		s.bufs[i] = make([]byte, len(s.shared))
	}
	if !batch(min(s.Window, s.iters) + 1) {
		return
	}
	if !s.s.Check {
		s.bufs = nil
	}
	if batch(warmUp(s.iters)) {
		s.timed(batch)
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
// memory stays in the cache.
func (s *Stream) Buf(i int) []byte {
	if s.bufs == nil {
		return s.shared
	}
	return s.own(i)
}

// own is a buffer with the payload of message i, or a cleared one to receive it.
func (s *Stream) own(i int) []byte {
	if i >= s.Window {
		s.verify(i - s.Window)
	}
	buf := s.bufs[i%s.Window]
	if s.s.First {
		fill(buf, i)
	} else {
		clear(buf)
	}
	return buf
}

// verify compares what was received as message i with its payload.
func (s *Stream) verify(i int) {
	if s.bufs == nil || s.s.First || s.err != nil {
		return
	}
	fill(s.shared, i)
	if err := damage(s.bufs[i%s.Window], s.shared); err != nil {
		s.err = fmt.Errorf("message %d of %d bytes %w", i, len(s.shared), err)
	}
}
