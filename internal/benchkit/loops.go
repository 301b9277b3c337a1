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
	Rate      = Streams("rate", stream) // of messages so small that their number is what counts
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
			if _, err := w.Recv(ctx, pong, p2p.Exact, l.In); err != nil {
				return err
			}
			continue
		}
		if _, err := w.Recv(ctx, ping, p2p.Exact, l.In); err != nil {
			return err
		}
		if err := w.Send(ctx, 0, pong, l.Out); err != nil {
			return err
		}
	}
	return nil
}

func stream(w *p2p.World, s *Stream) error {
	for range s.Batches {
		err := inParallel(len(s.parts), func(pair int) error { return s.parts[pair].move(w) })
		if err != nil {
			return err
		}
	}
	return nil
}

// move moves the messages of one batch and one pair.
func (s *part) move(w *p2p.World) error {
	ctx, data, done := context.Background(), pairTag(data, s.pair), pairTag(done, s.pair)
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
			*r = w.Irecv(data, p2p.Exact, s.buf(i))
		}
	}
	if w.Rank() == 1 {
		return w.Send(ctx, 0, done, nil)
	}
	_, err := w.Recv(ctx, done, p2p.Exact, nil)
	return err
}
