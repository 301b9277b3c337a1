package transporttest

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/invariant"
	"github.com/tagmatch/tagmatch/transport"
	"github.com/tagmatch/tagmatch/verbs/soft"
	"github.com/tagmatch/tagmatch/verbs/soft/softtest"
)

// counter is a Sink that counts, and records only what should not come.
type counter struct {
	Recorder
	unexpected, delivered, reads, fins int
}

func (c *counter) Eager(int, uint32, uint64, []byte)     { c.unexpected++ }
func (c *counter) Matched(uint64, int, uint32, uint64)   {}
func (c *counter) Delivered(_ uint64, _ uint64, _ error) { c.delivered++ }
func (c *counter) Deleted(uint64, bool)                  {}
func (c *counter) Fin(int, uint32)                       { c.fins++ }
func (c *counter) ReadDone(uint64, error)                { c.reads++ }

// duo is two connected transports over a loop wire without delays; the first sends.
type duo struct {
	tb    testing.TB
	a, b  transport.Transport
	sinks [2]counter
	id    uint64            // of the newest receive
	hdr   transport.RndvHdr // here, for it would escape
}

func newDuo(tb testing.TB, open Opener, direct bool) *duo {
	d := &duo{tb: tb}
	f := softtest.NewFabric(softtest.FabricOptions{Direct: direct})
	var trs [2]transport.Transport
	for i := range trs {
		dev, err := soft.Open(soft.Config{Fabric: f, Rank: i})
		require.NoError(tb, err)
		trs[i], err = open(dev, i, len(trs), Options{}, &d.sinks[i])
		require.NoError(tb, err)
		tb.Cleanup(func() {
			require.NoError(tb, trs[i].Close())
			require.NoError(tb, dev.Close())
		})
	}
	for _, tr := range trs {
		for peer := range trs {
			require.NoError(tb, tr.Connect(peer, trs[peer].Address()))
		}
	}
	d.a, d.b = trs[0], trs[1]
	Meet(tb, d.poll, d.a, d.b)
	return d
}

// ok is require.NoError without its cost.
func (d *duo) ok(err error) {
	if err != nil {
		d.tb.Fatal(err)
	}
}

func (d *duo) poll() {
	_, err := d.a.Poll()
	d.ok(err)
	_, err = d.b.Poll()
	d.ok(err)
}

// add adds a receive to b's list.
func (d *duo) add(tag uint64, buf []byte) {
	d.id++
	d.ok(d.b.TagList().Add(d.id, tag, exact, buf, d.handled()))
}

func (d *duo) handled() uint32 { return uint32(d.sinks[1].unexpected) }

// NoAllocation checks that no kind of message, nor a read or an operation of a tag list, allocates
// once it is warm.
func NoAllocation(t *testing.T, open Opener) {
	const large = 50_000
	for _, direct := range []bool{false, true} {
		d := newDuo(t, open, direct)
		payload, buf, dst := make([]byte, 100), make([]byte, large), make([]byte, large)
		rounds := 0
		round := func() {
			rounds++
			for i := range 8 {
				d.ok(d.a.SendEager(1, 1, uint64(i), payload))
			}
			region, err := d.a.Register(1, buf)
			d.ok(err)
			d.ok(d.a.Grant(1, 5))
			d.ok(d.b.Read(0, dst, region.Addr(), region.RKey(), 1))
			for d.sinks[1].unexpected < 8*rounds || d.sinks[1].reads < rounds {
				d.poll()
			}
			if d.b.TagList() != nil {
				d.match(region, payload, dst)
				for d.sinks[1].delivered < 2*rounds || d.sinks[0].fins < rounds {
					d.poll()
				}
			}
			d.ok(region.Dereg())
		}
		for range 300 {
			round()
		}
		if n := testing.AllocsPerRun(200, round); !invariant.Enabled {
			require.Zero(t, n, "direct=%v", direct)
		}
	}
}

// match sends an eager message and a rendezvous to receives in the list, and deletes a third one.
func (d *duo) match(region transport.Region, payload, dst []byte) {
	const tag = 1<<63 | 5
	d.add(7, dst[:len(payload)])
	d.add(tag, dst)
	d.add(9, nil)
	d.ok(d.b.TagList().Del(d.id, d.handled()))
	d.ok(d.a.SendEager(1, 0, 7, payload))
	d.hdr = transport.RndvHdr{Tag: tag, VA: region.Addr(), RKey: region.RKey(), Len: uint64(len(dst))}
	d.ok(d.a.SendRndv(1, &d.hdr))
}

// Benchmark measures one message from SendEager to the sink, matched by the device or not, with the
// sender's share of polling, and a poll without events.
//
//	go test ./transport/rc -run - -bench . -count 6
func Benchmark(b *testing.B, open Opener) {
	for _, size := range []int{8, 64, 1 << 10, 8<<10 - 16, 32 << 10} {
		for _, matched := range []bool{false, true} {
			b.Run(fmt.Sprintf("eager/%dB/matched=%v", size, matched), func(b *testing.B) {
				d := newDuo(b, open, false)
				if matched && d.b.TagList() == nil {
					b.Skip("no tag list")
				}
				d.messages(b, size, matched)
			})
		}
	}
	b.Run("idle", func(b *testing.B) {
		d := newDuo(b, open, false)
		for b.Loop() {
			_, _ = d.a.Poll()
		}
	})
}

func (d *duo) messages(b *testing.B, size int, matched bool) {
	payload, buf := make([]byte, size), make([]byte, size)
	got := &d.sinks[1]
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if matched {
			d.add(uint64(i), buf)
		}
		d.ok(d.a.SendEager(1, 0, uint64(i), payload))
		for got.unexpected+got.delivered <= i {
			_, _ = d.b.Poll()
		}
		if i%32 == 0 {
			_, _ = d.a.Poll()
		}
	}
}
