package transporttest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/transport"
)

// deleted checks the outcome of a Del.
func (x *tagged) deleted(id uint64, n int, ok bool) {
	x.t.Helper()
	require.Equal(x.t, Event{Kind: "deleted", ID: id, OK: ok}, x.event("deleted", n))
}

// testTagsCancel deletes before a message, after one, and twice.
func testTagsCancel(t *testing.T, h Harness, opts Options) {
	for _, limit := range []int{64, 32 << 10} {
		opts.MaxEager = limit
		x := h.tagged(t, 2, opts)
		for i := range uint64(30) {
			n := int(i)
			buf := make([]byte, []int{8, limit + 100}[i%2])
			x.add(4*i+1, 1, exact, buf)
			require.NoError(t, x.l.Del(4*i+1, x.handled()))
			require.Error(t, x.l.Del(4*i+1, x.handled()), "twice")
			x.deleted(4*i+1, n, true)
			require.Error(t, x.l.Del(4*i+1, x.handled()), "after its end")
			x.send(1, []byte("late"))
			require.Equal(t, []byte("late"), x.event("eager", n).Data)
			require.Equal(t, make([]byte, len(buf)), buf)

			x.add(4*i+2, 2, exact, buf) // a receive after the cancel
			x.send(2, []byte("taken"))
			x.expectDelivered(4*i+2, 2, buf, []byte("taken"))
			err := x.l.Del(4*i+2, x.handled())
			require.Error(t, err, "after its end")
			require.NotErrorIs(t, err, transport.ErrAgain)
			require.Error(t, x.l.Del(1<<50, 0), "never posted")
		}
		require.Len(t, x.b.of("deleted"), 30)
		x.roomForAll()
	}
}

// testTagsCancelRace cancels a receive while its message is in flight: exactly one of both takes
// effect, and no message is lost or duplicated.
func testTagsCancelRace(t *testing.T, h Harness, opts Options) {
	opts.MaxEager = 1 << 10
	x := h.tagged(t, 2, opts)
	region, err := x.a.Register(1, fill(3000, 3))
	require.NoError(t, err)
	const rounds = 200
	for i := range uint64(rounds) {
		tag := packed(0, uint32(i))
		x.add(i, tag, exact, make([]byte, 4000))
		if i%2 == 0 {
			x.send(tag, fill(100, i))
		} else {
			x.post(func() error {
				return x.a.SendRndv(1, &transport.RndvHdr{AppCtx: uint32(i), Tag: tag, VA: region.Addr(), RKey: region.RKey(), Len: 3000})
			})
		}
		x.steps(x.rng.IntN(12))
		asked := x.l.Del(i, x.handled()) == nil // else it was matched
		ended := func() (deleted, matched, delivered, unexpected int) {
			for _, e := range x.b.Events {
				switch {
				case e.Kind == "deleted" && e.ID == i:
					deleted++
				case e.Kind == "matched" && e.ID == i:
					matched++
				case e.Kind == "delivered" && e.ID == i:
					delivered++
				case (e.Kind == "eager" || e.Kind == "rndv") && e.Tag == tag:
					unexpected++
				}
			}
			return
		}
		x.until("both ends", func() bool {
			deleted, _, delivered, unexpected := ended()
			return delivered+unexpected > 0 && (deleted > 0 || !asked)
		})
		deleted, matched, delivered, unexpected := ended()
		require.Equal(t, 1, delivered+unexpected, "round %d", i)
		require.Equal(t, delivered, matched)
		if asked {
			require.Equal(t, 1, deleted)
			require.Equal(t, delivered == 0, x.b.of("deleted")[len(x.b.of("deleted"))-1].OK)
		}
	}
	x.steps(100)
	require.NoError(t, region.Dereg())
	x.roomForAll()
}

// testTagsLost: a peer is lost during its rendezvous; the receives end before the loss is reported,
// and those of other peers stay.
func testTagsLost(t *testing.T, h Harness, opts Options) {
	for round := range 8 {
		x := h.tagged(t, 3, opts)
		x.ping(x.a, x.b)
		x.ping(x.b, x.ranks[2])
		const n, size = 4, 300 << 10
		region := x.startRndv(n, size)
		buf := make([]byte, 8)
		x.add(n, packed(2, 7), exact, buf)
		x.steps(round * 5)
		require.NoError(t, region.Dereg())
		x.leave(x.a)
		x.until("the loss", func() bool { return len(x.b.of("lost")) > 0 })
		x.steps(200)
		x.requireLost(x.b, 0)
		matched, delivered := x.b.of("matched"), x.b.of("delivered")
		require.Len(t, delivered, len(matched), "each matched receive ends once")
		require.Equal(t, "lost", x.b.Events[len(x.b.Events)-1].Kind, "receives end before the peer is lost")
		for i := range uint64(n) {
			if err := x.l.Del(i, x.handled()); err == nil {
				x.until("outcomes", func() bool { return len(x.b.of("deleted"))+len(matched) > int(i) })
			}
		}
		x.post(func() error { return x.ranks[2].SendEager(1, 2, packed(2, 7), []byte("other")) })
		x.until("the other's message", func() bool { return len(x.b.of("delivered")) > len(delivered) })
		require.Equal(t, []byte("other"), buf[:5])
	}
}
