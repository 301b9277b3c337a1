package transporttest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/transport"
)

// Tests of the contract of transport.TagList. Rank 0 sends to rank 1, with raw tags unless a test
// says otherwise, so that app_ctx names the source.

// listSizes are the list sizes to test; as Options.MaxTags, so that the first means none.
var listSizes = []int{-1, 1, 2, 7, 127, 1023}

const exact = ^uint64(0)

// packed returns a Comm's tag from rank src.
func packed(src int, tag uint32) uint64 { return 1<<63 | 5<<52 | uint64(src)<<32 | uint64(tag) }

// tagged is ranks with a tag list each: a sends, b receives.
type tagged struct {
	*cluster
	a, b *rank
	l    transport.TagList
}

func (h Harness) tagged(t *testing.T, n int, opts Options) *tagged {
	t.Helper()
	c := h.start(t, n, opts)
	x := &tagged{cluster: c, a: c.ranks[0], b: c.ranks[1], l: c.ranks[1].TagList()}
	require.NotNil(t, x.l)
	return x
}

// handled returns C: a message is handled when the Recorder has recorded it.
func (x *tagged) handled() uint32 { return uint32(len(x.b.of("eager")) + len(x.b.of("rndv"))) }

func (x *tagged) add(id, tag, mask uint64, buf []byte) {
	x.t.Helper()
	x.post(func() error { return x.l.Add(id, tag, mask, buf, x.handled()) })
}

func (x *tagged) send(tag uint64, payload []byte) {
	x.t.Helper()
	x.post(func() error { return x.a.SendEager(1, 0, tag, payload) })
}

// event waits for the n-th event of a kind at rank 1, from 0.
func (x *tagged) event(kind string, n int) Event {
	x.t.Helper()
	x.until(kind, func() bool { return len(x.b.of(kind)) > n })
	return x.b.of(kind)[n]
}

// sync reports all messages as handled, so that entries become live.
func (x *tagged) sync() {
	x.t.Helper()
	x.post(func() error { return x.l.Sync(x.handled()) })
}

// expectDelivered checks a receive that the device matched.
func (x *tagged) expectDelivered(id, tag uint64, buf, payload []byte) {
	x.t.Helper()
	done := func() *Event {
		for i := range x.b.Events {
			if e := &x.b.Events[i]; e.Kind == "delivered" && e.ID == id {
				return e
			}
		}
		return nil
	}
	x.until("the delivery", func() bool { return done() != nil })
	require.NoError(x.t, done().Err)
	require.Equal(x.t, uint64(len(payload)), done().Len, "the length of the message, whatever fits")
	require.Equal(x.t, payload[:min(len(buf), len(payload))], buf[:min(len(buf), len(payload))])
	for _, e := range x.b.of("matched") {
		if e.ID == id {
			require.Equal(x.t, Event{Kind: "matched", ID: id, Src: 0, AppCtx: e.AppCtx, Tag: tag}, e)
			return
		}
	}
	require.Fail(x.t, "delivered without a match")
}

// roomForAll checks that no entry leaked: the whole list can be filled and emptied again.
func (x *tagged) roomForAll() {
	x.t.Helper()
	const base = 1 << 45
	n := len(x.b.of("deleted"))
	for i := range uint64(x.l.Capacity()) {
		x.add(base+i, base+i, exact, nil)
	}
	for i := range uint64(x.l.Capacity()) {
		require.NoError(x.t, x.l.Del(base+i, x.handled()))
	}
	x.until("all outcomes", func() bool { return len(x.b.of("deleted")) == n+x.l.Capacity() })
	for _, e := range x.b.of("deleted")[n:] {
		require.True(x.t, e.OK)
	}
	x.until("room", func() bool { return x.l.Free() > 0 })
}

// bufferSizes are sizes around every limit that decides how a message is received.
func bufferSizes(maxEager int) []int {
	var out []int
	for _, n := range []int{0, 1, 63, 64, 65, maxEager - 1, maxEager, maxEager + 1, maxEager + 1000} {
		if n >= 0 {
			out = append(out, n)
		}
	}
	return out
}

// testTagsExpected receives any message into any buffer; n is exact also where it does not fit.
func testTagsExpected(t *testing.T, h Harness, opts Options) {
	for _, limit := range limits {
		opts.MaxEager = limit
		x := h.tagged(t, 2, opts)
		maxEager, id := x.a.Caps().MaxEager, uint64(1)
		for _, room := range bufferSizes(maxEager) {
			for _, n := range append(sizes, maxEager-1, maxEager) {
				if n < 0 || n > maxEager {
					continue
				}
				buf, payload := make([]byte, room), fill(n, id)
				x.add(id, id, exact, buf)
				x.send(id, payload)
				x.expectDelivered(id, id, buf, payload)
				id++
			}
		}
		require.Empty(t, x.b.of("eager"), "all were expected")
		require.Empty(t, x.b.of("lost"))
	}
}

// testTagsSizes tests list sizes, with more rounds than entries; all entries are free in the end.
func testTagsSizes(t *testing.T, h Harness, opts Options) {
	for _, size := range listSizes {
		opts.MaxTags = size
		if size < 0 {
			c := h.start(t, 2, opts)
			require.Nil(t, c.ranks[1].TagList())
			c.exchange(50)
			continue
		}
		x := h.tagged(t, 2, opts)
		require.Equal(t, size, x.l.Capacity())
		rounds := 3
		if size > 100 {
			rounds = 1
		}
		for round := range rounds {
			x.fillList(uint64(round*size), size)
		}
		require.Empty(t, x.b.of("eager"))
	}
}

// fillList adds receives until the list is full, is refused one more, and matches all.
func (x *tagged) fillList(base uint64, size int) {
	x.t.Helper()
	bufs := make([][]byte, size)
	for i := range bufs {
		bufs[i] = make([]byte, 8)
		x.add(base+uint64(i), uint64(i), exact, bufs[i])
	}
	require.Zero(x.t, x.l.Free())
	require.Equal(x.t, transport.ErrAgain, x.l.Add(1<<40, 1, exact, nil, 0))
	for i := range bufs {
		x.send(uint64(i), fill(8, uint64(i)))
	}
	for i, buf := range bufs[max(0, size-8):] {
		n := uint64(i + max(0, size-8))
		x.expectDelivered(base+n, n, buf, fill(8, n))
	}
	x.roomForAll()
}

// testTagsMasks: entries that do not match stay; bits outside the mask are ignored; the oldest
// entry is matched first.
func testTagsMasks(t *testing.T, h Harness, opts Options) {
	x := h.tagged(t, 2, opts)
	bufs := [4][]byte{make([]byte, 10), make([]byte, 10), make([]byte, 10), make([]byte, 10)}
	x.add(1, 0x105, exact, bufs[0])
	x.add(2, 0xffff, 0xff00, bufs[1]) // canonical: 0xff00
	x.add(3, 0x105, 0, bufs[2])       // matches everything
	x.send(0xff42, []byte("masked"))
	x.expectDelivered(2, 0xff42, bufs[1], []byte("masked"))
	x.send(0x106, []byte("any"))
	x.expectDelivered(3, 0x106, bufs[2], []byte("any"))
	x.send(0x106, []byte("unexpected"))
	require.Equal(t, []byte("unexpected"), x.event("eager", 0).Data)
	x.send(0x105, []byte("still live")) // an unexpected message does not make an entry dormant
	x.expectDelivered(1, 0x105, bufs[0], []byte("still live"))
	require.NoError(t, x.a.SendCtrl(1, []byte("x"))) // never matched
	x.add(4, 0, 0, bufs[3])
	require.NoError(t, x.a.SendCtrl(1, []byte("y")))
	require.NoError(t, x.a.SendFin(1, 9))
	x.event("fin", 0)
	require.Len(t, x.b.of("ctrl"), 2)
	x.send(7, []byte("z"))
	x.expectDelivered(4, 7, bufs[3], []byte("z"))
}

// testTagsDormant: entries added with an old count are dormant, can be removed by ForceDel, and
// become live with a new count.
func testTagsDormant(t *testing.T, h Harness, opts Options) {
	x := h.tagged(t, 2, opts)
	for i := range uint64(40) {
		n := int(i)
		buf, other := make([]byte, 8), make([]byte, 8)
		require.NoError(t, x.l.Sync(x.handled()))
		x.send(100, []byte("unexpected"))
		require.Equal(t, uint64(100), x.event("eager", 2*n).Tag)
		old := x.handled() - 1
		require.NoError(t, x.l.Add(3*i+1, 5, exact, buf, old))
		require.NoError(t, x.l.Add(3*i+2, 6, exact, other, old))
		x.send(5, []byte("dormant"))
		require.Equal(t, uint64(5), x.event("eager", 2*n+1).Tag)
		x.post(func() error { return x.l.ForceDel(3*i+1, old) })
		require.Error(t, x.l.ForceDel(3*i+1, old), "a second time")
		x.until("a SYNC", func() bool { return x.l.Sync(x.handled()) == nil })
		x.send(6, fill(6, i))
		x.expectDelivered(3*i+2, 6, other, fill(6, i))
		require.Empty(t, x.b.of("deleted"))
		require.Equal(t, make([]byte, 8), buf, "removed")
		x.steps(20)
	}
	x.roomForAll()
}
