package progress

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Without a list, or with one that may not hold anything, software matches.
func TestNoOffload(t *testing.T) {
	for _, maxTags := range []int{-1, 2} {
		c := newCluster(t, 2, Config{Manual: true, OffloadMin: -1, MaxTags: maxTags}, fakeOpts{tags: 4})
		require.Equal(t, maxTags < 0, c.e[1].tags == nil)
		for range 4 {
			c.e[1].Irecv(0, 5, exact, make([]byte, 2000))
		}
		require.EqualValues(t, max(maxTags, 0), c.e[1].Metrics().Offload.Offloaded)
		for range 4 {
			require.NoError(t, c.e[0].Send(bg, 1, 5, nil))
		}
		c.step()
		c.quiet()
	}
	c := newCluster(t, 2, Config{Manual: true}, fakeOpts{tags: 4})
	for i, size := range []int{0, 1023, 1024} {
		c.e[1].Irecv(0, uint64(i), exact, make([]byte, size))
	}
	m := c.e[1].Metrics().Offload
	require.Equal(t, [2]uint64{2, 1}, [2]uint64{m.KeptSmall, m.Offloaded})
}

func TestSizeClasses(t *testing.T) {
	for n, want := range map[uint64]int{0: 0, 64: 0, 65: 1, 1024: 1, 1025: 2, 16 << 10: 2, 256 << 10: 3, 4 << 20: 4, 4<<20 + 1: 5, 1 << 60: 5} {
		require.Equal(t, want, sizeClass(n), n)
	}
}

func TestOffloadedTruncationAndCredit(t *testing.T) {
	r := newRace(t, Config{UnexpectedLimit: 1}, fakeOpts{tags: 4})
	for range 200 {
		req, buf := r.recv(5, exact, 10)
		r.step()
		r.send(5, 100, 1)
		r.step()
		st, err := ended(t, req)
		require.Equal(t, ErrTruncated, err)
		require.EqualValues(t, 100, st.Len)
		require.Equal(t, fill(100, 1)[:10], buf)
	}
	require.EqualValues(t, 200, r.m().Matched)
	require.Zero(t, r.cluster.e[0].Metrics().NoCredit)
}

func TestOffloadedPeerLost(t *testing.T) {
	c := newCluster(t, 3, Config{Manual: true, OffloadMin: -1}, fakeOpts{tags: 8})
	e, dev := c.e[0], c.net.nodes[0].dev
	dev.holdData = true
	inFlight := e.Irecv(2, 1, exact, make([]byte, 1000))
	posted := e.Irecv(2, 2, exact, make([]byte, 8))
	anyone := e.Irecv(AnySource, 0x13, 0xff, make([]byte, 8))
	buf := make([]byte, 8)
	other := e.Irecv(1, 4, exact, buf)
	c.step()
	c.e[2].Isend(0, 1, fill(1000, 1))
	c.step()
	c.net.kill(2)
	dev.holdData = false
	c.step()
	for _, r := range []Request{inFlight, posted, anyone} {
		requireLost(t, r, 2)
	}
	open(t, other)
	require.NoError(t, c.e[1].Send(bg, 0, 4, fill(8, 1)))
	c.step()
	_, err := ended(t, other)
	require.NoError(t, err)
	require.Equal(t, fill(8, 1), buf)
	require.EqualValues(t, 2, e.Metrics().Offload.Dels)
	require.Empty(t, dev.byID)
}

func TestOffloadedClose(t *testing.T) {
	for _, abort := range []bool{false, true} {
		c := newCluster(t, 2, Config{Manual: true, OffloadMin: -1}, fakeOpts{tags: 2})
		e, dev := c.e[1], c.net.nodes[1].dev
		var reqs []Request
		for tag := range uint64(4) {
			reqs = append(reqs, e.Irecv(0, tag, exact, make([]byte, 8)))
		}
		c.step()
		reqs[1].Cancel()
		dev.holdData = true
		require.NoError(t, c.e[0].Send(bg, 1, 0, nil))
		e.Poll()
		dev.holdCQ = true
		if abort {
			e.Abort(nil)
			open(t, reqs[0])
		}
		require.NoError(t, e.Close(nil))
		for i, r := range reqs {
			if i == 1 && !abort {
				continue // was taken out before
			}
			_, err := ended(t, r)
			require.Error(t, err)
		}
		require.Zero(t, e.off.entries+e.off.slots.used+e.posted.Len())
	}
}

func TestOffloadedContextEnds(t *testing.T) {
	for _, m := range []bool{false, true} {
		c := newCluster(t, 2, Config{Manual: m, OffloadMin: -1}, fakeOpts{tags: 2})
		ctx, cancel := context.WithCancel(bg)
		go func() {
			for c.e[0].Metrics().Offload.InDevice == 0 {
				time.Sleep(time.Millisecond)
			}
			cancel()
		}()
		_, err := c.e[0].Recv(ctx, 1, 5, exact, make([]byte, 8))
		require.Equal(t, context.Canceled, err)
		require.EqualValues(t, 1, c.e[0].Metrics().Offload.Dels)
		c.quiet()
	}
}

func TestOffloadedDump(t *testing.T) {
	r := newRace(t, Config{}, fakeOpts{tags: 2})
	req, _ := r.recv(5, exact, 8)
	var b bytes.Buffer
	require.NoError(t, r.e.Dump(&b))
	require.Contains(t, b.String(), "tag 0x5 mask 0xffffffffffffffff, 8 bytes, in the device")
	require.Contains(t, b.String(), "receives in the device: 1")
	req.Cancel()
	r.step()
	r.canceled(req)
}
