package progress

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// newHeldRace is a race whose sender has credit for a few messages.
func newHeldRace(t *testing.T) *race {
	return newRace(t, Config{UnexpectedLimit: tightLimit(2)}, fakeOpts{tags: 8})
}

// A receive in the device is named like any other, and the device matches what comes for it.
func TestReceiveInDeviceIsNamed(t *testing.T) {
	for _, early := range []bool{false, true} {
		for _, size := range []int{8, 1000} {
			r := newHeldRace(t)
			var req Request
			var buf []byte
			post := func(now bool) {
				if early == now {
					req, buf = r.recv(5, exact, 1000)
					r.step()
					require.Len(t, r.dev.list, int(boolBit(early)))
				}
			}
			post(true)
			for range 10 {
				r.send(9, 8, 0)
			}
			r.send(5, size, 1)
			r.send(9, 8, 0)
			r.step()
			post(false)
			r.got(req, buf, size, 1)
			require.EqualValues(t, 1, r.m().Matched)
			require.EqualValues(t, 1, r.e.Metrics().WantsSent)
			require.Equal(t, 1, r.waiting(0, 1))
			r.balanced()
			for range 11 {
				req, buf := r.recv(9, exact, 64)
				r.step()
				r.got(req, buf, 8, 0)
			}
			r.free()
			r.quiet()
		}
	}
}

// A cancelling receive is not named, and may still take what another's WANT would bring. So that is
// named once the device has answered, here that it has removed the first one.
func TestNoWantWhileCancelling(t *testing.T) {
	r := newHeldRace(t)
	first, _ := r.recv(5, exact, 64)
	r.step()
	r.dev.holdOps = true
	first.Cancel()
	require.Equal(t, 1, r.e.off.cancelling)
	r.flood(0, 1, 9, inCredit)
	one, two := r.send(5, 8, 1), r.send(5, 8, 2)
	second, buf := r.recv(5, exact, 64)
	r.step()
	open(t, one)
	_, due := r.e.peers[0].in.Due(true)
	require.True(t, due, "the receive is to be named")
	require.Zero(t, r.e.Metrics().WantsSent)
	r.balanced()
	r.release()
	canceled(t, first)
	r.got(second, buf, 8, 1)
	open(t, two)
	require.Zero(t, r.e.off.cancelling)
	r.balanced()
	two.Cancel()
	r.step()
	r.free()
}

// Here the cancelling receive was named before, and takes what it was named for.
func TestCancellingReceiveTakesItsMessage(t *testing.T) {
	r := newHeldRace(t)
	r.holdUp(0, 1)
	r.step()
	first, buf1 := r.recv(5, exact, 64)
	r.step()
	r.dev.holdOps = true
	first.Cancel()
	second, buf2 := r.recv(5, exact, 64) // does not take the place of the first
	r.step()
	require.Equal(t, 1, r.e.off.cancelling)
	require.EqualValues(t, 1, r.e.Metrics().WantsSent)
	r.send(5, 8, 1)
	r.send(5, 8, 2)
	r.step()
	r.got(first, buf1, 8, 1)
	r.release()
	r.got(second, buf2, 8, 2)
	require.EqualValues(t, 1, r.m().DelsLost)
	require.Zero(t, r.e.off.cancelling)
	r.free()
}

// The same with a HELD that comes while a receive is cancelling: nobody is named before the device
// has answered, then all that wait are.
func TestHeldWhileCancelling(t *testing.T) {
	r := newHeldRace(t)
	first, _ := r.recv(5, exact, 64)
	second, buf := r.recv(6, exact, 64)
	r.step()
	r.dev.holdOps = true
	first.Cancel()
	last := r.holdUp(0, 1)
	r.send(6, 8, 1)
	tail := r.send(5, 8, 2)
	r.step()
	open(t, last)
	require.Equal(t, 3, r.waiting(0, 1))
	r.release()
	canceled(t, first)
	r.got(second, buf, 8, 1)
	open(t, tail)
	require.EqualValues(t, 1, r.e.Metrics().WantsSent)
	r.balanced()
}

// Receives that the device matches are charged and given back like others, whatever their size.
func TestDeviceMatchesAreCharged(t *testing.T) {
	for _, software := range []bool{false, true} {
		r := newRace(t, Config{UnexpectedLimit: tightLimit(2)}, fakeOpts{tags: 8, software: software})
		for i := range 100 {
			size := []int{0, 8, 256, 1000}[i%4]
			req, buf := r.recv(5, exact, 1000)
			r.step()
			r.send(5, size, byte(i))
			r.step()
			r.got(req, buf, size, byte(i))
			charged, consumed, _ := r.e.peers[0].in.Usage()
			require.Equal(t, r.cluster.e[0].peers[1].out.Charged(), charged)
			require.Equal(t, charged, consumed)
			r.balanced()
		}
		require.EqualValues(t, 100, r.m().Matched)
		r.free()
		r.quiet()
	}
}
