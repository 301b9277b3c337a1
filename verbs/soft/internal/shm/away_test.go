//go:build linux

package shm

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/verbs/soft/internal/wire"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/wiretest"
)

// TestSHMAway: what is not urgent does not wake a device whose program computes, unless it fills
// the ring, and then once.
func TestSHMAway(t *testing.T) {
	a, b := newSHMEnd(t, 0), newSHMEnd(t, 1)
	l := joinSHM(t, a, b)
	woken := make(chan struct{}, 1)
	go func() {
		for b.notif.Wait() == nil {
			woken <- struct{}{}
		}
	}()
	arm := func() {
		b.w.Arm(false)
		for more := true; more; { // what woke it before
			select {
			case <-woken:
			case <-time.After(20 * time.Millisecond):
				more = false
			}
		}
	}
	leave := func() {
		for b.poll() > 0 {
		}
		arm()
		require.Zero(t, b.poll())
	}
	quiet := func() {
		t.Helper()
		select {
		case <-woken:
			require.Fail(t, "woken")
		case <-time.After(20 * time.Millisecond):
		}
	}
	send := func(h wire.Header) bool { return l.Send(&h, nil, nil) }
	for range 3 {
		leave()
		require.True(t, send(wire.Header{Op: wire.OpSend}) && send(wire.Header{Op: wire.OpAck}) && send(wire.Header{Op: wire.OpWrite}))
		quiet()
		require.True(t, send(wire.Header{Op: wire.OpSend, Flags: wire.FlagSolicited}))
		wiretest.Within(t, "the wake", func() { <-woken })
		leave()
		require.True(t, send(wire.Header{Op: wire.OpPushReq}))
		wiretest.Within(t, "the wake", func() { <-woken })
		leave()
		for send(wire.Header{Op: wire.OpSend}) {
		}
		wiretest.Within(t, "the wake", func() { <-woken })
		arm() // without taking anything
		for range 10 {
			require.False(t, send(wire.Header{Op: wire.OpPushReq}))
		}
		quiet()
	}
}
