package transporttest

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/transport"
)

func readSizes(long bool) []int {
	s := []int{0, 1, 7, 8, 63, 64, 65, 4095, 4096, 4097, 8191, 8193, 65537, 262145}
	if long {
		s = append(s, 1<<20+3, 8<<20)
	}
	return s
}

func testReads(t *testing.T, h Harness, opts Options) {
	c := h.start(t, 2, opts)
	readSize := readSizes(h.Long)
	src := fill(readSize[len(readSize)-1]+4096, 3)
	for from, r := range c.ranks {
		region, err := r.Register(0, src)
		require.NoError(t, err)
		reader := c.ranks[0]
		for i, n := range readSize {
			off := 1 + 13*i
			room := bytes.Repeat([]byte{0xEE}, n+32)
			dst := room[16 : 16+n]
			id := uint64(from)<<32 | uint64(i)
			c.post(func() error {
				return reader.Read(from, dst, region.Addr()+uint64(off), region.RKey(), id)
			})
			c.until("a read", func() bool { return len(reader.of("read")) == 1 })
			require.NoError(t, reader.Events[0].Err)
			require.Equal(t, id, reader.Events[0].ID)
			require.True(t, bytes.Equal(dst, src[off:off+n]), "%d bytes at %d", n, off)
			for _, guard := range [][]byte{room[:16], room[16+n:]} {
				require.Equal(t, bytes.Repeat([]byte{0xEE}, 16), guard)
			}
			reader.forget()
		}
		require.NoError(t, region.Dereg())
	}
}

// testReadsAtOnce keeps more reads outstanding than a peer answers concurrently, between messages.
func testReadsAtOnce(t *testing.T, h Harness, opts Options) {
	opts.SendDepth = 64
	c := h.start(t, 3, opts)
	a := c.ranks[0]
	src := fill(1<<20, 9)
	region, err := c.ranks[1].Register(0, src)
	require.NoError(t, err)
	const n, size = 100, 10001
	dst := make([][]byte, n)
	for i := range dst {
		dst[i] = make([]byte, size)
		c.post(func() error { return a.Read(1, dst[i], region.Addr()+uint64(i), region.RKey(), uint64(i)) })
		c.post(func() error { return a.SendCtrl(1, []byte{byte(i)}) })
	}
	c.until("all reads", func() bool { return len(a.of("read")) == n })
	seen := map[uint64]bool{}
	for _, e := range a.of("read") {
		require.NoError(t, e.Err)
		require.False(t, seen[e.ID], "read %d ends twice", e.ID)
		seen[e.ID] = true
		require.True(t, bytes.Equal(dst[e.ID], src[e.ID:e.ID+size]), "read %d", e.ID)
	}
	c.until("the messages between", func() bool { return len(c.ranks[1].messages(0)) == n })
	require.NoError(t, region.Dereg())
}

// testReadsLeaveRoom: waiting reads do not use up the room for messages.
func testReadsLeaveRoom(t *testing.T, h Harness, opts Options) {
	opts.SendDepth = 64
	c := h.start(t, 2, opts)
	a := c.ranks[0]
	region, err := c.ranks[1].Register(0, make([]byte, 100))
	require.NoError(t, err)
	n := 0
	for a.Read(1, make([]byte, 100), region.Addr(), region.RKey(), uint64(n)) == nil {
		n++
		require.Less(t, n, opts.SendDepth)
	}
	require.NoError(t, a.SendCtrl(1, []byte("message")))
	c.until("the message", func() bool { return len(c.ranks[1].messages(0)) == 1 })
	c.until("the reads", func() bool { return len(a.of("read")) == n })
	require.NoError(t, region.Dereg())
}

// testReadRefused reads memory that it may not read: the read ends with ErrDeregistered or, without
// Caps.Revoke, ends the link to this peer, and no other.
func testReadRefused(t *testing.T, h Harness, opts Options) {
	type where struct {
		va   uint64
		rkey uint32
	}
	buf := fill(64<<10, 1)
	for name, spoil := range map[string]func(region transport.Region) where{
		"deregistered": func(r transport.Region) where {
			w := where{r.Addr(), r.RKey()}
			_ = r.Dereg()
			return w
		},
		"behind": func(r transport.Region) where { return where{r.Addr() + 1, r.RKey()} },
		"before": func(r transport.Region) where { return where{r.Addr() - 1, r.RKey()} },
		"wraps":  func(r transport.Region) where { return where{^uint64(0) - 5, r.RKey()} },
		"rkey":   func(r transport.Region) where { return where{r.Addr(), r.RKey() + 1<<20} },
		"null":   func(transport.Region) where { return where{} },
	} {
		c := h.start(t, 3, opts)
		a := c.ranks[0]
		region, err := c.ranks[1].Register(0, buf)
		require.NoError(t, err)
		w := spoil(region)
		require.NoError(t, a.Read(1, make([]byte, len(buf)), w.va, w.rkey, 42))
		if a.Caps().Revoke {
			requireDeregistered(t, c, name)
			if name != "deregistered" {
				require.NoError(t, region.Dereg())
			}
			continue
		}
		c.until(name+": the loss", func() bool { return len(a.of("lost")) > 0 })
		reads := a.of("read")
		require.Len(t, reads, 1, name)
		require.Error(t, reads[0].Err, name)
		require.Equal(t, "read", a.Events[0].Kind, "reads end before the peer is lost")
		c.requireLost(a, 1)
		c.until(name+": the loss on the other side", func() bool { return len(c.ranks[1].of("lost")) > 0 })
		c.requireLost(c.ranks[1], 0)
		requireGone(t, a, 1)
		c.ping(a, c.ranks[2])
		c.ping(c.ranks[1], c.ranks[2])
		c.ping(a, a)
		if name != "deregistered" {
			require.NoError(t, region.Dereg())
		}
	}
}

// requireDeregistered checks that read 42 of rank 0 from rank 1 fails alone.
func requireDeregistered(t *testing.T, c *cluster, name string) {
	a, b := c.ranks[0], c.ranks[1]
	c.until(name+": the read", func() bool { return len(a.of("read")) > 0 })
	require.Equal(t, []Event{{Kind: "read", ID: 42, Err: transport.ErrDeregistered}}, a.of("read"), name)
	c.steps(50)
	require.Empty(t, a.of("lost"), name)
	require.Empty(t, b.of("lost"), name)
	a.forget()
	c.ping(a, b)
	c.ping(b, a)
}

// testReadRevoked deregisters memory at every moment of a read, with other reads and messages
// around: only that read fails, unless it was complete.
func testReadRevoked(t *testing.T, h Harness, opts Options) {
	c := h.start(t, 2, opts)
	a, b := c.ranks[0], c.ranks[1]
	if !a.Caps().Revoke {
		return // testReadRefused covers that
	}
	const size, most = 8 << 20, 1000 // devices send up to 1 MiB at a time
	src := fill(size, 5)
	kept, err := b.Register(0, src)
	require.NoError(t, err)
	rounds, faults := 40, 0
	for i := uint64(0); int(i) < rounds; i++ {
		gone, err := b.Register(0, src)
		require.NoError(t, err)
		one, two := make([]byte, size), make([]byte, 1000)
		c.post(func() error { return a.Read(1, one, gone.Addr(), gone.RKey(), 2*i) })
		c.post(func() error { return a.Read(1, two, kept.Addr(), kept.RKey(), 2*i+1) })
		c.post(func() error { return a.SendCtrl(1, []byte{byte(i)}) })
		c.steps(int(i) % 40 / 2)
		require.NoError(t, gone.Dereg())
		c.until("both reads", func() bool { return len(a.of("read")) == 2 })
		for _, e := range a.of("read") {
			switch {
			case e.ID == 2*i+1:
				require.NoError(t, e.Err)
				require.True(t, bytes.Equal(two, src[:1000]))
			case e.Err == nil:
				require.True(t, bytes.Equal(one, src), "a read that succeeded is whole")
			default:
				require.Equal(t, transport.ErrDeregistered, e.Err)
				faults++
			}
		}
		a.forget()
		if faults == 0 { // a device that runs by itself may have been faster each time
			rounds = min(rounds+1, most)
		}
	}
	require.NotZero(t, faults)
	c.until("the messages between", func() bool { return len(b.messages(0)) == rounds })
	require.Empty(t, b.of("lost"))
	require.NoError(t, kept.Dereg())
}

// testReadAbandoned abandons reads at every moment: nothing is written to the destination from then
// on, each read still ends, and other reads go on.
func testReadAbandoned(t *testing.T, h Harness, opts Options) {
	c := h.start(t, 2, opts)
	a, b := c.ranks[0], c.ranks[1]
	if !a.Caps().Revoke {
		return
	}
	const size = 2*256<<10 + 1 // devices copy up to 256 KiB at a time
	src := fill(size, 5)
	region, err := b.Register(0, src)
	require.NoError(t, err)
	faults := 0
	for i := range uint64(30) {
		one, two := make([]byte, size), make([]byte, 1000)
		for range 2 { // with one id, as the reads of one receive have
			c.post(func() error { return a.Read(1, one, region.Addr(), region.RKey(), 2*i) })
		}
		c.post(func() error { return a.Read(1, two, region.Addr(), region.RKey(), 2*i+1) })
		c.steps(int(i) / 2)
		c.until("the destination is released", func() bool { return a.Abandon(1, 2*i) })
		left := bytes.Clone(one)
		require.True(t, a.Abandon(1, 2*i))
		c.until("all reads", func() bool { return len(a.of("read")) == 3 })
		for _, e := range a.of("read") {
			if e.ID == 2*i+1 || e.Err != nil {
				require.Equal(t, e.ID == 2*i, e.Err == transport.ErrDeregistered, e)
			}
			if e.Err != nil {
				faults++
			}
		}
		require.True(t, bytes.Equal(left, one), "written to after Abandon")
		require.True(t, bytes.Equal(two, src[:1000]))
		a.forget()
	}
	require.NotZero(t, faults)
	c.ping(a, b)
	require.NoError(t, region.Dereg())
}
