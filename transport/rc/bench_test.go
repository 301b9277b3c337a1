package rc_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/invariant"
	"github.com/tagmatch/tagmatch/transport/rc"
	"github.com/tagmatch/tagmatch/transport/transporttest"
	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/soft/softtest"
)

// counter is a Sink that counts.
type counter struct {
	transporttest.Recorder
	n, bytes int
}

func (c *counter) Eager(_ int, _ uint32, _ uint64, payload []byte) {
	c.n++
	c.bytes += len(payload)
}

func (c *counter) ReadDone(_ uint64, err error) {
	if err == nil {
		c.n++
	}
}

// pair opens two connected transports over a loop that delivers at once.
func pair(tb testing.TB, direct bool) (tr [2]*rc.Transport, sinks [2]*counter) {
	tr = transporttest.Pair(tb, softtest.FabricOptions{Direct: direct}, func(dev verbs.Device, rank int) (*rc.Transport, error) {
		sinks[rank] = &counter{}
		return rc.New(rc.Config{Device: dev, Rank: rank, Size: 2}, sinks[rank])
	})
	return tr, sinks
}

// BenchmarkEager measures one message from SendEager to Sink.Eager, and the sender's share of
// polling.
//
// go test ./transport/rc -run - -bench Eager -count 6
func BenchmarkEager(b *testing.B) {
	for _, bm := range []struct {
		name string
		size int
	}{{"8B", 8}, {"64B", 64}, {"1KiB", 1 << 10}, {"8KiB-16", 8<<10 - 16}} {
		b.Run(bm.name, func(b *testing.B) {
			tr, sinks := pair(b, false)
			payload := make([]byte, bm.size)
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				if tr[0].SendEager(1, 1, uint64(i), payload) != nil {
					b.Fatal("refused")
				}
				for sinks[1].n <= i {
					_, _ = tr[1].Poll()
				}
				if i%32 == 0 {
					_, _ = tr[0].Poll()
				}
			}
		})
	}
}

// BenchmarkIdlePoll measures a poll without events.
func BenchmarkIdlePoll(b *testing.B) {
	tr, _ := pair(b, false)
	for b.Loop() {
		_, _ = tr[0].Poll()
	}
}

// TestNoAllocation: sending, receiving and reading allocate nothing in the steady state.
func TestNoAllocation(t *testing.T) {
	for _, direct := range []bool{false, true} {
		tr, sinks := pair(t, direct)
		payload, buf, dst := make([]byte, 100), make([]byte, 50_000), make([]byte, 50_000)
		got := 0
		round := func() {
			for i := range 8 {
				ok(t, tr[0].SendEager(1, 1, uint64(i), payload))
			}
			region, err := tr[0].Register(1, buf)
			ok(t, err)
			ok(t, tr[0].Grant(1, 5))
			ok(t, tr[1].Read(0, dst, region.Addr(), region.RKey(), 1))
			got += 9
			for sinks[1].n < got {
				_, _ = tr[0].Poll()
				_, _ = tr[1].Poll()
			}
			ok(t, region.Dereg())
		}
		for range 200 {
			round()
		}
		if n := testing.AllocsPerRun(200, round); !invariant.Enabled {
			require.Zero(t, n, "direct=%v", direct)
		}
	}
}

func ok(t *testing.T, err error) {
	if err != nil {
		t.Fatal(err)
	}
}
