package tmsrq_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/invariant"
	"github.com/tagmatch/tagmatch/transport"
	"github.com/tagmatch/tagmatch/transport/tmsrq"
	"github.com/tagmatch/tagmatch/transport/transporttest"
	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/soft/softtest"
)

// counter is a Sink that counts.
type counter struct {
	transporttest.Recorder
	unexpected, delivered, fins int
}

func (c *counter) Eager(int, uint32, uint64, []byte)     { c.unexpected++ }
func (c *counter) Matched(uint64, int, uint32, uint64)   {}
func (c *counter) Delivered(_ uint64, _ uint64, _ error) { c.delivered++ }
func (c *counter) Incomplete(uint64, *transport.RndvHdr) {}
func (c *counter) Deleted(uint64, bool)                  {}
func (c *counter) Fin(int, uint32)                       { c.fins++ }

// pair opens two connected transports over a loop that delivers at once.
func pair(tb testing.TB) (tr [2]*tmsrq.Transport, sinks [2]*counter) {
	tr = transporttest.Pair(tb, softtest.FabricOptions{}, func(dev verbs.Device, rank int) (*tmsrq.Transport, error) {
		sinks[rank] = &counter{}
		return tmsrq.New(tmsrq.Config{Device: dev, Rank: rank, Size: 2}, sinks[rank])
	})
	return tr, sinks
}

// BenchmarkEager measures one message from SendEager to the sink, matched by the device or not.
//
//	go test ./transport/tmsrq -run - -bench Eager -count 6
func BenchmarkEager(b *testing.B) {
	for _, bm := range []struct {
		name string
		size int
		list bool
	}{{"unexpected/8B", 8, false}, {"unexpected/1KiB", 1 << 10, false}, {"matched/8B", 8, true}, {"matched/1KiB", 1 << 10, true},
		{"direct/32KiB", 32 << 10, true}} {
		b.Run(bm.name, func(b *testing.B) {
			tr, sinks := pair(b)
			payload, buf := make([]byte, bm.size), make([]byte, bm.size)
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				if bm.list && tr[1].TagList().Add(uint64(i), uint64(i), ^uint64(0), buf, 0) != nil {
					b.Fatal("no room")
				}
				if tr[0].SendEager(1, 0, uint64(i), payload) != nil {
					b.Fatal("refused")
				}
				for sinks[1].unexpected+sinks[1].delivered <= i {
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
	tr, _ := pair(b)
	for b.Loop() {
		_, _ = tr[0].Poll()
	}
}

// TestNoAllocation: no kind of message and no operation of the list allocates once it is warm.
func TestNoAllocation(t *testing.T) {
	tr, sinks := pair(t)
	payload, small, large := make([]byte, 100), make([]byte, 100), make([]byte, 40_000)
	region, err := tr[0].Register(1, make([]byte, 40_000))
	require.NoError(t, err)
	l := tr[1].TagList()
	id, want := uint64(0), 0
	add := func(tag uint64, buf []byte) uint64 {
		id++
		ok(t, l.Add(id, tag, ^uint64(0), buf, uint32(sinks[1].unexpected)))
		return id
	}
	var hdr transport.RndvHdr
	round := func() {
		const tag = 1<<63 | 5
		add(7, small)
		add(tag, large)
		ok(t, l.Del(add(9, small), uint32(sinks[1].unexpected)))
		ok(t, tr[0].SendEager(1, 0, 8, payload)) // unexpected
		ok(t, tr[0].SendEager(1, 0, 7, payload))
		hdr = transport.RndvHdr{Tag: tag, VA: region.Addr(), RKey: region.RKey(), Len: 40_000}
		ok(t, tr[0].SendRndv(1, &hdr))
		want++
		for sinks[1].unexpected < want || sinks[1].delivered < 2*want || sinks[0].fins < want {
			_, _ = tr[0].Poll()
			_, _ = tr[1].Poll()
		}
	}
	for range 300 {
		round()
	}
	if n := testing.AllocsPerRun(200, round); !invariant.Enabled {
		require.Zero(t, n)
	}
	require.NoError(t, region.Dereg())
}

func ok(t *testing.T, err error) {
	if err != nil {
		t.Fatal(err)
	}
}
