package benchkit

import (
	"context"

	"github.com/tagmatch/tagmatch/p2p"
)

// Tags distinguish the two directions of rounds, and a stream from the message that ends a batch.
const (
	ping p2p.Tag = 1 + iota
	pong
	data
	done
)

// The tests between two ranks, by the loops of examples/pingpong and examples/bandwidth, where they
// are explained.
var (
	PingPong  = RoundTrips(bounce)
	Bandwidth = Streams("bw", stream)
	Rate      = Streams("rate", stream) // of messages so small that their number is what counts
)

func bounce(w *p2p.World, l *Loop) error {
	ctx := context.Background()
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
	ctx, reqs := context.Background(), make([]p2p.Request, s.Window)
	for n := range s.Batches {
		for i := range n + len(reqs) {
			r := &reqs[i%len(reqs)]
			if _, err := r.Wait(ctx); err != nil {
				return err
			}
			switch {
			case i >= n:
				*r = p2p.Request{}
			case w.Rank() == 0:
				*r = w.Isend(1, data, s.Buf(i))
			default:
				*r = w.Irecv(data, p2p.Exact, s.Buf(i))
			}
		}
		var err error
		if w.Rank() == 0 {
			_, err = w.Recv(ctx, done, p2p.Exact, nil)
		} else {
			err = w.Send(ctx, 0, done, nil)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
