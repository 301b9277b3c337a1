package p2p_test

import (
	"cmp"
	"fmt"
	"sync"
	"testing"

	"github.com/tagmatch/tagmatch/p2p"
	"github.com/tagmatch/tagmatch/p2p/p2ptest"
)

// BenchmarkSendRecv measures round trips of 8 bytes between two ranks of this process, above all
// the allocations of both. For times between processes run ./bench.
func BenchmarkSendRecv(b *testing.B) {
	for _, device := range []string{"", "shm", "tcp"} {
		b.Run(cmp.Or(device, "loop"), func(b *testing.B) {
			skipUnlessLinux(b, device)
			p2ptest.RunConfig(b, 2, p2p.Config{Device: device}, func(w *p2p.World) {
				if err := roundTrips(w, 1, 1000); err != nil {
					b.Error(err)
				}
				if w.Rank() == 0 {
					b.ReportAllocs()
					b.ResetTimer()
				}
				if err := roundTrips(w, 1, b.N); err != nil {
					b.Error(err)
				}
				if w.Rank() == 0 {
					b.StopTimer()
				}
			})
		})
	}
}

// BenchmarkGoroutines has goroutines of each rank share the round trips: with more of them one is
// not to take much longer.
func BenchmarkGoroutines(b *testing.B) {
	for _, device := range []string{"", "shm", "tcp"} {
		for _, n := range []int{1, 8, 64, 1024} {
			b.Run(fmt.Sprintf("%s/%d", cmp.Or(device, "loop"), n), func(b *testing.B) {
				skipUnlessLinux(b, device)
				p2ptest.RunConfig(b, 2, p2p.Config{Device: device}, func(w *p2p.World) {
					var all sync.WaitGroup
					for id := range n {
						all.Go(func() {
							if err := roundTrips(w, p2p.Tag(id), (b.N+n-1)/n); err != nil {
								b.Error(err)
							}
						})
					}
					all.Wait()
				})
			})
		}
	}
}

// roundTrips bounces n messages of 8 bytes with a tag between ranks 0 and 1.
func roundTrips(w *p2p.World, tag p2p.Tag, n int) error {
	buf := make([]byte, 8)
	for range n {
		if w.Rank() == 0 {
			if err := w.Send(background, 1, tag, buf); err != nil {
				return err
			}
		}
		if _, err := w.Recv(background, tag, p2p.Exact, buf); err != nil {
			return err
		}
		if w.Rank() == 1 {
			if err := w.Send(background, 0, tag, buf); err != nil {
				return err
			}
		}
	}
	return nil
}
