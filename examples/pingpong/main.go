// Pingpong bounces messages between two ranks and prints the half round trip and the bandwidth by
// message size.
//
//	go run ./examples/pingpong [-device auto|shm|tcp] [-transport auto|rc|tmsrq]
//		[-sizes 8,1k,1m] [-iters N] [-check] [-json]
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
		Name:  "pingpong",
		About: "half round trip and bandwidth between two ranks, by message size",
		Sizes: benchkit.Sizes{0, 8, 64, 512, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20},
		Run:   benchkit.RoundTrips(bounce),
	}.Main()
}

// Tags tell the two directions apart.
const (
	ping p2p.Tag = 1 + iota
	pong
)

// bounce is what is timed: rank 0 sends a message and waits for the answer, rank 1 answers.
// l.Rounds runs the loop's body once to verify what arrives, some times to warm up, and as often as
// -iters says with the clock running; w has joined the job, and is shut down after the last size.
func bounce(w *p2p.World, l *benchkit.Loop) error {
	ctx := context.Background()
	for range l.Rounds {
		if w.Rank() == 0 {
			if err := w.Send(ctx, 1, ping, l.Out); err != nil {
				return err
			}
			if _, err := w.Recv(ctx, pong, p2p.MaskExact, l.In); err != nil {
				return err
			}
		} else {
			if _, err := w.Recv(ctx, ping, p2p.MaskExact, l.In); err != nil {
				return err
			}
			if err := w.Send(ctx, 0, pong, l.Out); err != nil {
				return err
			}
		}
	}
	return nil
}
