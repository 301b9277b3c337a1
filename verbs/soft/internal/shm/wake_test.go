//go:build linux

package shm

import (
	"os"
	"os/signal"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/tagmatch/tagmatch/verbs/soft/internal/wire"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/wiretest"
)

// given returns the descriptors that a device gives its peers.
func (e *shmEnd) given(t *testing.T) []int {
	ours, theirs := unixPair(t)
	ended := make(chan error, 1)
	go func() { ended <- e.exchange(ours, &wire.Address{PID: e.self.PID, Rank: 9}) }()
	_, fds, err := readOffer(theirs, e.cfg.RingBytes)
	require.NoError(t, err)
	t.Cleanup(func() {
		for _, fd := range fds {
			_ = unix.Close(fd)
		}
	})
	require.NoError(t, theirs.Close())
	require.Error(t, <-ended)
	return fds
}

// woken reports whether a peer has written to the pipe since Arm.
func (e *shmEnd) woken(t *testing.T) bool {
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(e.w.local.pipe.r), Events: unix.POLLIN}}, 0)
	require.NoError(t, err)
	return n != 0
}

// TestSHMFlagsOfOthers: a peer that clears the flags of all descriptors that it was given, and has
// filled the pipe, blocks neither the device nor others that wake it.
func TestSHMFlagsOfOthers(t *testing.T) {
	a, b := newSHMEnd(t, 0), newSHMEnd(t, 1)
	l := joinSHM(t, a, b)
	fds := b.given(t)
	require.Len(t, fds, offerFDs)
	fill := func() {
		own, err := openWaker(fds[3])
		require.NoError(t, err)
		defer func() { _ = unix.Close(own) }()
		for err == nil {
			_, err = unix.Write(own, make([]byte, 4096))
		}
		require.Equal(t, unix.EAGAIN, err)
	}
	for _, fd := range fds {
		_, err := unix.FcntlInt(uintptr(fd), unix.F_SETFL, 0)
		require.NoError(t, err)
	}
	for range 3 {
		for b.poll() > 0 {
		}
		b.got = nil
		wiretest.Within(t, "a drain", func() { b.w.Arm(true) })
		fill()
		wiretest.Within(t, "a wake-up", func() { require.True(t, l.Send(&wire.Header{Op: wire.OpSend}, nil, nil)) })
		wiretest.Within(t, "the wake", func() { require.NoError(t, b.notif.Wait()) })
		b.w.Disarm()
		pollUntil(t, "the packet", func() bool { return len(b.got) == 1 }, b)
		wiretest.Within(t, "an end of waking", func() {
			for b.woken(t) {
				b.w.Arm(true)
			}
			b.w.Arm(true) // nothing is there to be read
		})
		b.w.Disarm()
	}
}

// TestSHMWakeAfterTheEnd: who wakes a device that has ended gets no signal of it, which its program
// may have asked for.
func TestSHMWakeAfterTheEnd(t *testing.T) {
	a, b := newSHMEnd(t, 0), newSHMEnd(t, 1)
	l := joinSHM(t, a, b)
	come := make(chan os.Signal, 2)
	signal.Notify(come, unix.SIGPIPE, unix.SIGWINCH)
	defer signal.Stop(come)
	b.w.Arm(true)
	b.stop()
	require.True(t, l.Send(&wire.Header{Op: wire.OpSend}, nil, nil))
	require.NoError(t, unix.Kill(os.Getpid(), unix.SIGWINCH)) // of two the lower number comes first
	require.Equal(t, unix.SIGWINCH, <-come)
}
