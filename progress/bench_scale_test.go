package progress

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/transport"
)

// Benchmarks of events whose cost must not grow with what is outstanding: each is one event among
// many operations.

const manyRequests = 40000

// unmatched is a cluster of two in which rank 0 has sent n rendezvous requests that wait at rank 1.
func unmatched(t testing.TB, n int) (*cluster, []Request) {
	c := newCluster(t, 2, Config{Manual: true, UnexpectedLimit: 1 << 30}, fakeOpts{})
	reqs := make([]Request, n)
	buf := make([]byte, 1000)
	for i := range reqs {
		reqs[i] = c.e[0].Isend(1, uint64(i), buf)
	}
	c.step()
	require.Equal(t, n, c.e[1].Metrics().UnexpectedNow)
	return c, reqs
}

// reading is the same where each request is being read by a receive. Reads end when holdRds is
// taken back.
func reading(t testing.TB, n int) (c *cluster, sends, recvs []Request) {
	c, sends = unmatched(t, n)
	c.net.nodes[1].holdRds = true
	recvs = make([]Request, n)
	for i := range recvs {
		recvs[i] = c.e[1].Irecv(0, uint64(i), exact, make([]byte, 1000))
	}
	require.Equal(t, n, c.e[1].Metrics().ReadsNow)
	return c, sends, recvs
}

// heldUpAgain lets rank 1 tell rank 0 that it is held up, and that it is no more.
func heldUpAgain(c *cluster, episode uint32) {
	c.callback(0, func(s transport.Sink) {
		for _, id := range []uint32{episode*2 + 1, episode*2 + 2} {
			s.Ctrl(1, ctrl{kind: ctrlHeld, id: id, body: heldBody{allowed: 1 << 60}.encode()}.encode())
		}
	})
	c.net.nodes[1].in[0] = nil // rank 1 knows nothing of it
}

// withReceivesOfAnother is a cluster of three in which rank 0 waits for n messages of rank 2.
func withReceivesOfAnother(t testing.TB, n int) *cluster {
	c := manual(t, 3, fakeOpts{})
	for i := range n {
		c.e[0].Irecv(2, uint64(i), exact, nil)
	}
	return c
}

func BenchmarkWithdraw(b *testing.B) {
	b.Run("waiting", func(b *testing.B) {
		for b.Loop() {
			b.StopTimer()
			c, reqs := unmatched(b, manyRequests)
			b.StartTimer()
			for _, r := range reqs {
				r.Cancel()
			}
			c.step()
			b.StopTimer()
			require.EqualValues(b, manyRequests, c.e[0].Metrics().Canceled)
			b.StartTimer()
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*manyRequests), "ns/withdraw")
	})
	b.Run("reading", func(b *testing.B) {
		c, reqs, _ := reading(b, manyRequests)
		for b.Loop() {
			for _, r := range reqs {
				c.callback(1, func(s transport.Sink) { s.Ctrl(0, ctrl{kind: ctrlWithdraw, id: r.op.slot.wire()}.encode()) })
			}
			c.step()
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*manyRequests), "ns/withdraw")
		c.net.nodes[1].holdRds = false
	})
}

func BenchmarkHeld(b *testing.B) {
	c := withReceivesOfAnother(b, 100000)
	episode := uint32(0)
	for b.Loop() {
		heldUpAgain(c, episode)
		episode++
	}
}
