//go:build linux

package shm

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/verbs/soft/internal/wire"
)

// TestSHMPreparesRing: the first idle poll after a long packet clears the ring ahead; a link that
// is down is left alone.
func TestSHMPreparesRing(t *testing.T) {
	a, b := newSHMEnd(t, 0), newSHMEnd(t, 1)
	l := joinSHM(t, a, b)
	send := func(size int) {
		b.got, b.data = nil, nil
		h := wire.Header{Op: wire.OpSend, Length: uint32(size), Total: uint64(size)}
		require.True(t, l.Send(&h, nil, bytes.Repeat([]byte{0xff}, size)))
		pollUntil(t, "the packet", func() bool { return len(b.got) > 0 }, b)
		b.poll() // makes room
	}
	for range 8 { // a lap
		send(l.MaxPayload())
	}
	written := func() bool {
		before := bytes.Clone(l.peer.txSeg.Mem)
		a.poll()
		return !bytes.Equal(before, l.peer.txSeg.Mem)
	}
	require.True(t, written())
	require.False(t, written(), "once is enough")
	send(8)
	require.Nil(t, a.w.long, "a short packet has lines cleared behind it")
	send(1 << 10)
	require.NotNil(t, a.w.long)
	l.Close()
	a.poll()
	require.Nil(t, a.w.long)
}
