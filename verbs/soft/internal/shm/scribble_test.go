//go:build linux

package shm

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/verbs/soft/internal/wire"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/wiretest"
)

// TestSHMScribbledInbox: what one peer writes to a device's inbox, or leaves undone, does not keep
// it from the packets of another, whether it polls or sleeps, nor from a new peer.
func TestSHMScribbledInbox(t *testing.T) {
	a, b, mad := newSHMEnd(t, 0), newSHMEnd(t, 1), newSHMEnd(t, 2)
	l, m := joinSHM(t, a, b), joinSHM(t, mad, b)
	scribble := func() { clear(m.peer.inboxSeg.Mem) }
	send := func() {
		t.Helper()
		require.True(t, l.Send(&wire.Header{Op: wire.OpSend}, nil, nil))
		scribble()
	}
	asleep := func(asleep bool) {
		for b.poll() > 0 {
		}
		for len(b.w.hot) > 0 {
			b.w.demote(0)
		}
		b.got = nil
		if asleep {
			b.w.Arm(true)
			require.Zero(t, b.poll())
		}
	}
	arrives := func() {
		t.Helper()
		pollUntil(t, "the packet", func() bool { return len(b.got) == 1 }, b)
	}
	t.Run("polls", func(t *testing.T) {
		asleep(false)
		send()
		arrives()
	})
	for name, woken := range map[string]func(){
		"cleared":       scribble,
		"says it wakes": func() { require.True(t, m.peer.inbox.Raise(m.peer.peerSlot, true)) },
	} {
		t.Run(name, func(t *testing.T) {
			for range 3 {
				asleep(true)
				woken()
				send()
				wiretest.Within(t, "the wake", func() { require.NoError(t, b.notif.Wait()) })
				b.w.Disarm()
				arrives()
			}
		})
	}
	t.Run("connects", func(t *testing.T) {
		c := newSHMEnd(t, 3)
		pollUntil(t, "a connection", func() bool { scribble(); return c.send(b, wire.Header{Op: wire.OpAck}) }, b, c)
	})
	require.Empty(t, b.down)
}

// TestSHMSweepsRarely: a device that sleeps, and to which nothing is sent, wakes ever more rarely
// to look at its rings. What arrives sets that back.
func TestSHMSweepsRarely(t *testing.T) {
	a, b, c := newSHMEnd(t, 0), newSHMEnd(t, 1), newSHMEnd(t, 2)
	l := joinSHM(t, a, b)
	joinSHM(t, c, b)
	sleep := func() {
		t.Helper()
		b.w.Arm(true)
		require.Zero(t, b.poll())
		require.LessOrEqual(t, b.w.alarm.at, wire.Monotonic()+sweepIdle)
	}
	wake := func() {
		t.Helper()
		wiretest.Within(t, "the wake", func() { require.NoError(t, b.notif.Wait()) })
		b.w.Disarm()
	}
	for b.poll() > 0 {
	}
	sleep()
	for b.w.alarm.after < sweepIdle {
		before, at := b.w.alarm.after, b.w.alarm.at
		wake()
		b.poll()
		sleep()
		require.True(t, b.w.alarm.at == at || b.w.alarm.after > before)
	}
	require.True(t, l.Send(&wire.Header{Op: wire.OpSend}, nil, nil))
	wake()
	pollUntil(t, "the packet", func() bool { return len(b.got) == 1 }, b)
	sleep()
	require.LessOrEqual(t, b.w.alarm.at-b.w.swept, sweepEvery)
}
