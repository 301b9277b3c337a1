package benchkit

import (
	"context"

	"github.com/tagmatch/tagmatch/p2p"
)

// Tags tell the stream from the message that ends it.
const (
	data p2p.Tag = 1 + iota
	done
)

// Bandwidth measures a stream of messages of one size.
func Bandwidth(s *Session, size, iters int) (Result, error) { return streaming("bw", s, size, iters) }

// Rate is Bandwidth by another name, for messages so small that their number is what counts.
func Rate(s *Session, size, iters int) (Result, error) { return streaming("rate", s, size, iters) }

func streaming(test string, s *Session, size, iters int) (Result, error) {
	verified := newStream(s, size, true)
	if err := verified.run(min(s.Window, iters) + 1); err != nil { // payloads are verified before timing
		return Result{}, err
	}
	if s.Check {
		return s.stream(test, size, iters, verified.run)
	}
	return s.stream(test, size, iters, newStream(s, size, false).run)
}

// stream is one rank's side: a ring of requests, as many as may be under way at once.
type stream struct {
	w       *p2p.World
	peer    int
	first   bool
	check   bool
	bufs    [][]byte // by place in the ring
	pending []p2p.Request
}

// newStream gives each place a buffer of its own where payloads are checked. Otherwise all share one, as in other
// benchmarks of this kind: contents do not matter then, and the memory stays in the cache.
func newStream(s *Session, size int, check bool) *stream {
	st := &stream{w: s.World, peer: s.Peer, first: s.First, check: check,
		bufs: make([][]byte, s.Window), pending: make([]p2p.Request, s.Window)}
	shared := make([]byte, size)
	for i := range st.bufs {
		st.bufs[i] = shared
		if check {
			st.bufs[i] = make([]byte, size)
		}
	}
	return st
}

// run moves n messages; on the first rank it returns when the other has said that it has them all.
func (s *stream) run(n int) error {
	window := len(s.pending)
	for seq := range n + window {
		if seq >= window {
			if err := s.finish(seq - window); err != nil {
				return err
			}
		}
		if seq < n {
			s.begin(seq)
		}
	}
	ctx := context.Background()
	if s.first {
		_, err := s.w.Recv(ctx, done, p2p.Exact, nil)
		return err
	}
	return s.w.Send(ctx, s.peer, done, nil)
}

// begin starts message seq in its place.
func (s *stream) begin(seq int) {
	i := seq % len(s.pending)
	if s.first {
		if s.check {
			fill(s.bufs[i], seq)
		}
		s.pending[i] = s.w.Isend(s.peer, data, s.bufs[i])
		return
	}
	s.pending[i] = s.w.Irecv(data, p2p.Exact, s.bufs[i])
}

// finish waits for message seq.
func (s *stream) finish(seq int) error {
	i := seq % len(s.pending)
	st, err := s.pending[i].Wait(context.Background())
	s.pending[i] = p2p.Request{}
	if err != nil || s.first || !s.check {
		return err
	}
	return verify(s.bufs[i], st, seq)
}
