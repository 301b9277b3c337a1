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
		c := newCluster(t, 2, Config{Manual: true, MaxTags: maxTags}, fakeOpts{tags: 4})
		require.Equal(t, maxTags < 0, c.e[1].off.tags == nil)
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
	c := newCluster(t, 2, Config{Manual: true, OffloadMin: 1024}, fakeOpts{tags: 4})
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

// An eager message that is too long ends as it does without a device; and what the device matched
// gives its credit back.
func TestOffloadedTruncationAndCredit(t *testing.T) {
	r := newRace(t, Config{UnexpectedLimit: 1}, fakeOpts{tags: 4})
	for range 200 {
		req, buf := r.recv(5, exact, 10)
		r.step()
		r.send(5, 100, 1)
		r.step()
		st, err := ended(t, req)
		require.ErrorIs(t, err, ErrTruncated)
		require.EqualValues(t, 100, st.Len)
		require.Equal(t, fill(100, 1)[:10], buf)
	}
	require.EqualValues(t, 200, r.m().Matched)
	require.Zero(t, r.cluster.e[0].Metrics().QueuedBytes)
}

// A blocking receive returns when the device has given its buffer back.
func TestOffloadedContextEnds(t *testing.T) {
	for _, m := range []bool{false, true} {
		c := newCluster(t, 2, Config{Manual: m}, fakeOpts{tags: 2})
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
	require.Contains(t, b.String(), "tag 0x5, 8 bytes, in the device")
	require.Contains(t, b.String(), "receives in the device: 1")
	req.Cancel()
	r.step()
	canceled(t, req)
}

// TestFullListEmptiesALittle: a list that was full is not used again for each entry that leaves,
// but when some of it is free (TMO 6.10).
func TestFullListEmptiesALittle(t *testing.T) {
	const tags, low = 16, 2
	r := newRace(t, Config{}, fakeOpts{tags: tags})
	var reqs []Request
	for i := range uint64(tags + 3) {
		req, _ := r.recv(i, exact, 64)
		reqs = append(reqs, req)
	}
	r.step()
	promoted := func() uint64 { r.step(); return r.m().Promoted }
	require.EqualValues(t, tags, r.m().Offloaded)
	for i := range uint64(low - 1) {
		r.send(i, 8, 1)
		require.Zero(t, promoted(), "%d of %d entries are free", i+1, tags)
	}
	r.send(low-1, 8, 1)
	require.EqualValues(t, low, promoted())
	for i := uint64(low); i < tags+3; i++ {
		r.send(i, 8, 1)
		require.EqualValues(t, min(low+(i-low+1)/low, 3), promoted())
	}
	succeeded(t, reqs...)
}
