package progress

import (
	"context"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/transport"
)

// polled is a transport that counts polls.
type polled struct {
	transport.Transport
	polls int
	do    func(poll int)
}

func (t *polled) Poll() (int, error) {
	if t.polls++; t.do != nil {
		t.do(t.polls)
	}
	return t.Transport.Poll()
}

// crowded is a cluster in which rank 0 has no room for another message to rank 1, as after a crowd
// of them, and one of its goroutines is parked if sleeper is set. Nobody else polls.
func crowded(t *testing.T, sleeper bool) (*cluster, *polled) {
	c := unstarted(t, 2, Config{}, fakeOpts{room: 1})
	e := c.e[0]
	if sleeper {
		ctx, cancel := context.WithCancel(bg)
		done := make(chan struct{})
		t.Cleanup(func() {
			cancel()
			<-done
		})
		go func() {
			defer close(done)
			_, _ = e.Recv(ctx, 1, 9, exact, nil)
		}()
		for asleep := false; !asleep; {
			runtime.Gosched()
			e.mu.Lock()
			asleep = e.wait.Sleepers()
			e.mu.Unlock()
		}
	}
	e.peers[1].out.patience = roomVain
	succeeded(t, e.Isend(1, 1, nil))
	tr := &polled{Transport: e.tr}
	e.tr = tr
	return c, tr
}

// An Isend that finds no room polls for some while others sleep, and needs no place in the queue
// then.
func TestIsendAwaitsRoom(t *testing.T) {
	c, tr := crowded(t, true)
	e := c.e[0]
	tr.do = func(poll int) {
		if poll == 3 {
			c.e[1].Poll()
		}
	}
	require.True(t, e.Isend(1, 1, nil).Over())
	require.Equal(t, 3, tr.polls)

	// What waits in the queue is sent first.
	queued := e.Isend(1, 1, nil)
	require.False(t, queued.Over())
	require.Equal(t, 3+roomPolls, tr.polls)
	tr.do = func(int) { c.e[1].Poll() }
	require.True(t, e.Isend(1, 1, nil).Over())
	require.True(t, queued.Over())
	require.Equal(t, 3+roomPolls+2, tr.polls)
}

// Without others that sleep, and where more is missing than room, it waits in the queue at once.
func TestIsendAwaitsNothing(t *testing.T) {
	c, tr := crowded(t, false)
	require.False(t, c.e[0].Isend(1, 1, nil).Over())
	require.Zero(t, tr.polls)

	c, tr = crowded(t, true)
	require.False(t, c.e[0].Isend(1, 1, fill(c.e[0].cfg.EagerLimit+1, 1)).Over(), "a rendezvous")
	_, err := ended(t, c.e[0].Isend(2, 1, nil))
	require.ErrorIs(t, err, ErrInvalid)
	require.Zero(t, tr.polls)

	c, tr = crowded(t, true)
	c.e[0].mu.Lock()
	c.e[0].peers[1].out.charged = c.e[0].peers[1].out.allowed
	c.e[0].mu.Unlock()
	require.False(t, c.e[0].Isend(1, 1, nil).Over(), "without credit")
	require.Zero(t, tr.polls)
}

// A peer that takes nothing is polled for no longer.
func TestIsendAwaitsInVain(t *testing.T) {
	c, tr := crowded(t, true)
	for range roomVain/roomPolls + 1 {
		require.False(t, c.e[0].Isend(1, 1, nil).Over())
	}
	require.Equal(t, roomVain, tr.polls)
}

// Isends poll for room from where a message leaves a long queue.
func TestIsendAwaitsCrowd(t *testing.T) {
	c := unstarted(t, 2, Config{}, fakeOpts{room: 1})
	leave := func() int {
		c.e[1].Poll()
		c.e[0].Poll()
		return c.e[0].peers[1].out.patience
	}
	for range longQueue + 1 {
		c.e[0].Isend(1, 1, nil)
	}
	require.Zero(t, leave())
	require.Equal(t, longQueue-1, c.waiting(0, 1))
	c.e[0].Isend(1, 1, nil)
	c.e[0].Isend(1, 1, nil)
	require.Equal(t, roomVain, leave())
}
