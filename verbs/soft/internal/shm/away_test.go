//go:build linux

package shm

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/wire"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/wiretest"
)

// TestSHMAway: what is not urgent does not wake a device whose program computes, unless it fills
// the ring, and then once.
func TestSHMAway(t *testing.T) {
	a, b := newSHMEnd(t, 0), newSHMEnd(t, 1)
	l := joinSHM(t, a, b)
	woken := func() bool { return b.woken(t) }
	wakes := func() {
		t.Helper()
		require.True(t, woken())
		wiretest.Within(t, "the wake", func() { require.NoError(t, b.notif.Wait()) })
	}
	leave := func() {
		for b.poll() > 0 {
		}
		b.w.Arm(false)
		require.Zero(t, b.poll())
	}
	send := func(h wire.Header) bool { return l.Send(&h, nil, nil) }
	for range 3 {
		leave()
		require.True(t, send(wire.Header{Op: wire.OpSend}) && send(wire.Header{Op: wire.OpAck}) && send(wire.Header{Op: wire.OpWrite}))
		require.False(t, woken())
		require.True(t, send(wire.Header{Op: wire.OpSend, Flags: wire.FlagSolicited}))
		wakes()
		leave()
		require.True(t, send(wire.Header{Op: wire.OpPushReq}))
		wakes()
		leave()
		for send(wire.Header{Op: wire.OpSend}) {
		}
		wakes()
		b.w.Arm(false) // without taking anything
		for range 10 {
			require.False(t, send(wire.Header{Op: wire.OpPushReq}))
		}
		require.False(t, woken())
	}
}

// TestSHMAccused: the device accuses a peer, which hears of it behind what was sent before.
func TestSHMAccused(t *testing.T) {
	a, b := newSHMEnd(t, 0), newSHMEnd(t, 1)
	l := joinSHM(t, a, b)
	require.True(t, l.Send(&wire.Header{Op: wire.OpSend}, nil, nil))
	l.Accuse()
	pollUntil(t, "the end", func() bool { return len(b.down) > 0 }, a, b)
	require.ErrorIs(t, b.down[0], verbs.ErrAccused)
	require.Len(t, b.got, 1)
	require.Empty(t, a.down)
}
