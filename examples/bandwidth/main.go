// Bandwidth streams messages from one rank to another, many under way at once, and prints MB/s and
// messages a second by size.
//
//	go run ./examples/bandwidth [-device auto|shm|tcp] [-transport auto|rc|tmsrq]
//		[-sizes 8,64k,1m] [-window 64] [-iters N] [-check] [-json]
//
// Started plainly it launches itself as two ranks on this host; under a launcher, ranks 0 and 1
// measure.
//
// Concurrency: each rank has one goroutine.
package main

import (
	"context"

	"github.com/tagmatch/tagmatch/internal/benchkit"
	"github.com/tagmatch/tagmatch/p2p"
)

func main() {
	benchkit.Command{
		Name:   "bandwidth",
		About:  "bandwidth from one rank to another, by message size",
		Sizes:  benchkit.Sizes{8, 64, 512, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20},
		Window: 64,
		Run:    benchkit.Streams("bw", stream),
	}.Main()
}

// Tags tell the stream from the message that ends a batch of it.
const (
	data p2p.Tag = 1 + iota
	done
)

// stream is what is timed: rank 0 sends n messages to rank 1, at most s.Window of which are under
// way at once. s.Batches runs the loop's body with a few messages to verify what arrives, some to
// warm up, and with as many as -iters says while the clock runs.
func stream(w *p2p.World, s *benchkit.Stream) error {
	ctx := context.Background()
	requests := make([]p2p.Request, s.Window) // used in turn; to wait for a zero Request is nothing
	for n := range s.Batches {
		for i := range n + s.Window {
			r := &requests[i%s.Window]
			if _, err := r.Wait(ctx); err != nil {
				return err
			}
			switch {
			case i >= n:
				*r = p2p.Request{} // a request is waited for once
			case w.Rank() == 0:
				*r = w.Isend(1, data, s.Buf(i))
			default:
				*r = w.Irecv(data, p2p.MaskExact, s.Buf(i))
			}
		}
		if err := agree(ctx, w); err != nil {
			return err
		}
	}
	return nil
}

// agree returns on rank 0 when rank 1 has received all.
func agree(ctx context.Context, w *p2p.World) error {
	if w.Rank() == 0 {
		_, err := w.Recv(ctx, done, p2p.MaskExact, nil)
		return err
	}
	return w.Send(ctx, 0, done, nil)
}
