package benchkit

import (
	"context"

	"github.com/tagmatch/tagmatch/p2p"
)

// Tags distinguish the two directions of rounds, and a stream from the message that ends a batch.
// Those here are of the first pair.
const (
	ping p2p.Tag = 1 + iota
	pong
	data
	done

	pairTags = iota // those of pair i of goroutines begin with i*pairTags+1
)

// The tests between two ranks, by the loops of examples/pingpong and examples/bandwidth, where they
// are explained.
var (
	PingPong  = RoundTrips(bounce)
	Bandwidth = Streams("bw", stream)
	Rate      = Streams("rate", windows) // of messages so small that their number is what counts
)

// pairTag is the tag of a pair of goroutines that has the meaning of tag.
func pairTag(tag p2p.Tag, pair int) p2p.Tag { return tag + p2p.Tag(pair*pairTags) }

func bounce(w *p2p.World, l *Loop) error {
	ctx, ping, pong := context.Background(), pairTag(ping, l.pair), pairTag(pong, l.pair)
	for range l.Rounds {
		if w.Rank() == 0 {
			if err := w.Send(ctx, 1, ping, l.Out); err != nil {
				return err
			}
			if _, err := w.Recv(ctx, pong, p2p.MaskExact, l.In); err != nil {
				return err
			}
			continue
		}
		if _, err := w.Recv(ctx, ping, p2p.MaskExact, l.In); err != nil {
			return err
		}
		if err := w.Send(ctx, 0, pong, l.Out); err != nil {
			return err
		}
	}
	return nil
}

func stream(w *p2p.World, s *Stream) error { return s.each((*part).move, w) }

// windows has each window completed by one call before the next begins. With -many one call posts
// it too.
func windows(w *p2p.World, s *Stream) error {
	if s.s.Many {
		return s.each((*part).many, w)
	}
	return s.each((*part).windows, w)
}

// each has all goroutines of this rank move the messages of all batches.
func (s *Stream) each(move func(*part, *p2p.World) error, w *p2p.World) error {
	for range s.Batches {
		err := inParallel(len(s.parts), func(pair int) error {
			if err := move(s.parts[pair], w); err != nil {
				return err
			}
			return s.parts[pair].agree(w)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// agree returns on rank 0 when rank 1 has received all.
func (s *part) agree(w *p2p.World) error {
	ctx, done := context.Background(), pairTag(done, s.pair)
	if w.Rank() == 1 {
		return w.Send(ctx, 0, done, nil)
	}
	_, err := w.Recv(ctx, done, p2p.MaskExact, nil)
	return err
}

// windows moves the messages of one batch and one pair, window by window.
func (s *part) windows(w *p2p.World) error {
	ctx, data := context.Background(), pairTag(data, s.pair)
	for i := 0; i < s.n; i += s.window {
		reqs := s.reqs[:min(s.window, s.n-i)]
		for k := range reqs {
			if w.Rank() == 0 {
				reqs[k] = w.Isend(1, data, s.buf(i+k))
			} else {
				reqs[k] = w.Irecv(data, p2p.MaskExact, s.buf(i+k))
			}
		}
		if err := p2p.WaitAll(ctx, reqs, nil); err != nil {
			return err
		}
	}
	return nil
}

// many is windows by calls that post many messages at once.
func (s *part) many(w *p2p.World) error {
	ctx, data := context.Background(), pairTag(data, s.pair)
	messages := make([]p2p.Transfer, s.window)
	for i := 0; i < s.n; i += s.window {
		messages = messages[:min(s.window, s.n-i)]
		for k := range messages {
			m := &messages[k]
			m.Rank, m.Tag, m.Buf = 1-w.Rank(), data, s.buf(i+k)
		}
		reqs := s.reqs[:0]
		if w.Rank() == 0 {
			reqs = w.Comm().IsendAll(reqs, messages)
		} else {
			reqs = w.Comm().IrecvAll(reqs, messages)
		}
		if err := p2p.WaitAll(ctx, reqs, nil); err != nil {
			return err
		}
	}
	return nil
}

// move moves the messages of one batch and one pair.
func (s *part) move(w *p2p.World) error {
	ctx, data := context.Background(), pairTag(data, s.pair)
	reqs := s.reqs
	for i := range s.n + len(reqs) {
		r := &reqs[i%len(reqs)]
		if _, err := r.Wait(ctx); err != nil {
			return err
		}
		switch {
		case i >= s.n:
			*r = p2p.Request{}
		case w.Rank() == 0:
			*r = w.Isend(1, data, s.buf(i))
		default:
			*r = w.Irecv(data, p2p.MaskExact, s.buf(i))
		}
	}
	return nil
}
