//go:build linux

package shm

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/tagmatch/tagmatch/internal/memfd"
	"github.com/tagmatch/tagmatch/internal/shmring"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/mem"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/wire"
)

// ringMemory is how much of a mapped segment this process has touched.
func ringMemory(t *testing.T, s *memfd.Segment) int {
	maps, err := os.ReadFile("/proc/self/smaps")
	require.NoError(t, err)
	part := regexp.MustCompile(fmt.Sprintf(`(?m)^%08x-.*\n(?:[A-Z].*\n)*?Rss: +(\d+) kB`, mem.AddrOf(s.Mem))).FindSubmatch(maps)
	require.NotNil(t, part)
	kib, err := strconv.Atoi(string(part[1]))
	require.NoError(t, err)
	return kib << 10
}

func bigRing(e *shmEnd) { e.cfg.RingBytes = 256 << 10 }

// TestSHMRingMemory: messages one by one, however many, touch the first part of a ring alone; many
// at once, or a long one, take the rest.
func TestSHMRingMemory(t *testing.T) {
	a, b := newSHMEnd(t, 0, bigRing), newSHMEnd(t, 1, bigRing)
	l := joinSHM(t, a, b)
	small := shmring.First(256<<10) + 2*os.Getpagesize()
	if !memfd.CanReserve() {
		small = ringSegmentBytes(256 << 10) // before Linux 5.14
	}
	body := bytes.Repeat([]byte("x"), 1000)
	send := func(body []byte) bool { return l.Send(&wire.Header{Op: wire.OpSend}, body, nil) }
	for range 2000 {
		require.True(t, send(body))
		pollUntil(t, "the packet", func() bool { return len(b.got) > 0 }, b)
		require.Equal(t, body, b.data[0])
		b.got, b.data = nil, nil
	}
	require.LessOrEqual(t, ringMemory(t, l.peer.txSeg), small)
	require.LessOrEqual(t, ringMemory(t, b.linkTo(a).peer.rxSeg), small)
	for send(body) {
	}
	require.Greater(t, ringMemory(t, l.peer.txSeg), 200<<10)

	l = joinSHM(t, b, a)
	require.LessOrEqual(t, ringMemory(t, l.peer.txSeg), small)
	long := bytes.Repeat([]byte("y"), l.MaxPayload())
	require.True(t, send(long))
	pollUntil(t, "the long packet", func() bool { return len(a.got) > 0 }, a)
	require.Equal(t, long, a.data[0])
}

// TestSHMRingWithoutMemory: a link whose ring can have no memory for a long packet ends with words
// that say so. One that is only full waits.
func TestSHMRingWithoutMemory(t *testing.T) {
	a, b := newSHMEnd(t, 0, bigRing), newSHMEnd(t, 1, bigRing)
	l := joinSHM(t, a, b)
	none := errors.New("cannot allocate memory")
	fresh, err := memfd.New("tagmatch-test", ringSegmentBytes(256<<10), memfd.Allocated)
	require.NoError(t, err)
	defer fresh.Close()
	l.peer.tx, err = shmring.NewProducer(fresh.Mem[:shmring.Size(256<<10)], func() error { return none })
	require.NoError(t, err)
	n := 0
	for l.Send(&wire.Header{Op: wire.OpSend}, make([]byte, 1000), nil) {
		n++
	}
	require.Greater(t, n, 10)
	require.Equal(t, shmUp, l.state)
	require.False(t, l.Send(&wire.Header{Op: wire.OpSend}, make([]byte, l.MaxPayload()), nil))
	pollUntil(t, "the end of the link", func() bool { return len(a.down) > 0 }, a)
	require.ErrorIs(t, a.down[0], none)
	require.ErrorContains(t, a.down[0], "no memory for long packets")
	pollUntil(t, "the end of the link", func() bool { return len(b.down) > 0 }, a, b)
	require.ErrorIs(t, b.down[0], unix.ENOMEM)
	require.ErrorContains(t, b.down[0], "the peer has broken it off, for lack of memory")
}
