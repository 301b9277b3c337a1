package p2p_test

import (
	"cmp"
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
				if err := roundTrips(w, 1000); err != nil {
					b.Error(err)
				}
				if w.Rank() == 0 {
					b.ReportAllocs()
					b.ResetTimer()
				}
				if err := roundTrips(w, b.N); err != nil {
					b.Error(err)
				}
				if w.Rank() == 0 {
					b.StopTimer()
				}
			})
		})
	}
}

// roundTrips bounces n messages of 8 bytes between ranks 0 and 1.
func roundTrips(w *p2p.World, n int) error {
	buf := make([]byte, 8)
	for range n {
		if w.Rank() == 0 {
			if err := w.Send(background, 1, 1, buf); err != nil {
				return err
			}
		}
		if _, err := w.Recv(background, 1, p2p.Exact, buf); err != nil {
			return err
		}
		if w.Rank() == 1 {
			if err := w.Send(background, 0, 1, buf); err != nil {
				return err
			}
		}
	}
	return nil
}
