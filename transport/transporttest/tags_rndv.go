package transporttest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/transport"
)

// testTagsRndv receives rendezvous into any buffer. Those that the device can handle end with its
// FIN; the others are left to software, with the sender's software header.
func testTagsRndv(t *testing.T, h Harness, opts Options) {
	for _, limit := range []int{-1, 1, 64, 8 << 10} {
		opts.MaxEager = limit
		x := h.tagged(t, 2, opts)
		id := uint64(0)
		for _, room := range bufferSizes(x.a.Caps().MaxEager) {
			for _, size := range []int{0, 1, 64, 65, 5000, 20000} {
				for _, tag := range []uint64{packed(0, 77), 77} {
					x.rendezvous(id, tag, room, size)
					id++
				}
			}
		}
		require.Empty(t, x.b.of("rndv"), "all were expected")
		require.Empty(t, x.a.of("lost"))
	}
}

func (x *tagged) rendezvous(id, tag uint64, room, size int) {
	t := x.t
	t.Helper()
	data, buf := fill(size, id), make([]byte, room)
	region, err := x.a.Register(1, data)
	require.NoError(t, err)
	x.add(id, tag, exact, buf)
	req := &transport.RndvHdr{AppCtx: uint32(id)<<8 | 1, Tag: tag, VA: region.Addr(), RKey: region.RKey(), Len: uint64(size),
		Extra: fill(x.a.Caps().MaxHdr, id)}
	x.post(func() error { return x.a.SendRndv(1, req) })
	before, delivered := len(x.b.of("incomplete")), len(x.b.of("delivered"))
	x.until("the receive to end", func() bool {
		return len(x.b.of("incomplete")) > before || len(x.b.of("delivered")) > delivered
	})
	if len(x.b.of("incomplete")) > before {
		e := x.b.of("incomplete")[before]
		want := Event{Kind: "incomplete", ID: id, AppCtx: req.AppCtx, Tag: tag, VA: req.VA, RKey: req.RKey, Len: req.Len}
		// The device consumes the software header of a request it handles (TMO 9).
		if e.Data != nil {
			want.Data = req.Extra
		}
		require.Equal(t, want, e)
		require.Equal(t, tag>>63 == 0, e.Data != nil, "raw tags come whole")
		if tag>>63 == 1 {
			require.Greater(t, size, room)
		}
		dst := make([]byte, min(room, size))
		x.post(func() error { return x.b.Read(0, dst, e.VA, e.RKey, id) })
		x.until("the read", func() bool { return len(x.b.of("read")) > 0 && x.b.of("read")[len(x.b.of("read"))-1].ID == id })
		require.Equal(t, data[:len(dst)], dst)
		x.post(func() error { return x.b.SendFin(0, e.AppCtx) })
	} else {
		x.expectDelivered(id, tag, buf, data)
	}
	x.until("the FIN", func() bool {
		fins := x.a.of("fin")
		return len(fins) > 0 && fins[len(fins)-1].AppCtx == req.AppCtx
	})
	require.NoError(t, region.Dereg())
}

// startRndv starts n rendezvous of a, and adds the receives 0 to n-1 of b that match them.
func (x *tagged) startRndv(n, size int) transport.Region {
	region, err := x.a.Register(1, fill(size, 1))
	require.NoError(x.t, err)
	for i := range uint64(n) {
		tag := packed(0, uint32(i))
		x.add(i, tag, exact, make([]byte, size))
		x.post(func() error {
			return x.a.SendRndv(1, &transport.RndvHdr{Tag: tag, VA: region.Addr(), RKey: region.RKey(), Len: uint64(size)})
		})
	}
	return region
}

// testTagsLied: a rank sends with another rank's tag; the receive ends with an error, and so do all
// outstanding operations with the liar, before its loss is reported.
func testTagsLied(t *testing.T, h Harness, opts Options) {
	for _, tag := range []uint64{packed(2, 1), packed(1<<20-1, 1), 5} {
		x := h.tagged(t, 3, opts)
		const n, size = 3, 300 << 10
		region := x.startRndv(n, size)
		x.add(n, tag, exact, make([]byte, 10))
		x.post(func() error { return x.a.SendEager(1, 2, tag, []byte("lie")) })
		x.until("the loss", func() bool { return len(x.b.of("lost")) > 0 })
		x.steps(200)
		x.requireLost(x.b, 0)
		require.Equal(t, 0, x.event("matched", n).Src)
		delivered := x.b.of("delivered")
		require.Len(t, delivered, n+1)
		for _, e := range delivered {
			require.True(t, e.ID != n || e.Err != nil, "the lie is an error")
		}
		require.Equal(t, "lost", x.b.Events[len(x.b.Events)-1].Kind, "receives end before the peer is lost")
		require.NoError(t, region.Dereg())
		x.ping(x.b, x.ranks[2])
	}
}
