package notify

import (
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/tagmatch/tagmatch/internal/testlevel"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/wiretest"
)

// open makes a notifier that is closed when the test ends.
func open(t *testing.T) *Epoll {
	n, err := NewEpoll()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, n.Close()) })
	return n
}

func TestNotifierWakeBeforeWait(t *testing.T) {
	n := open(t)
	n.Wake()
	n.Wake()
	wiretest.Within(t, "wait after wake", func() { require.NoError(t, n.Wait()) })
	require.NoError(t, n.Close())
	require.ErrorIs(t, n.Wait(), ErrClosed)
}

func TestNotifierDescriptor(t *testing.T) {
	n := open(t)
	var p [2]int
	require.NoError(t, unix.Pipe2(p[:], unix.O_CLOEXEC|unix.O_NONBLOCK))
	defer unix.Close(p[0])
	defer unix.Close(p[1])
	require.NoError(t, n.Add(p[0], unix.EPOLLIN))
	for range 100 {
		woken := make(chan error, 1)
		go func() { woken <- n.Wait() }()
		_, err := unix.Write(p[1], []byte{1})
		require.NoError(t, err)
		wiretest.Within(t, "wait", func() { require.NoError(t, <-woken) })
		require.True(t, ready(n))
		// Level-triggered: as long as nobody reads, every wait returns.
		wiretest.Within(t, "wait again", func() { require.NoError(t, n.Wait()) })
		_, err = unix.Read(p[0], make([]byte, 1))
		require.NoError(t, err)
	}
	// Silenced, the descriptor is not seen; with its events back, it is at once.
	require.NoError(t, n.Mod(p[0], 0))
	_, err := unix.Write(p[1], []byte{1})
	require.NoError(t, err)
	require.False(t, ready(n))
	woken := make(chan error, 1)
	go func() { woken <- n.Wait() }()
	require.NoError(t, n.Mod(p[0], unix.EPOLLIN))
	wiretest.Within(t, "wait after mod", func() { require.NoError(t, <-woken) })
	require.NoError(t, n.Del(p[0]))
	require.False(t, ready(n))
}

// ready reports whether a Wait would end now.
func ready(n *Epoll) bool {
	k, err := unix.EpollWait(n.epfd, make([]unix.EpollEvent, 1), 0)
	return k > 0 || err != nil
}

// TestNotifierNoLostWake plays the owner's protocol against producers: look for work, wait when
// there is none. A lost wake-up leaves the owner asleep for ever.
func TestNotifierNoLostWake(t *testing.T) {
	n := open(t)
	rounds := 200_000
	if !testlevel.CI() {
		rounds = 20_000
	}
	const producers = 3
	var work atomic.Int64
	var wg sync.WaitGroup
	for p := range producers {
		wg.Go(func() {
			for i := range rounds {
				work.Add(1)
				n.Wake()
				if i%(100+p) == 0 {
					runtime.Gosched()
				}
			}
		})
	}
	wiretest.Within(t, "rounds", func() {
		for seen := int64(0); seen < int64(producers*rounds); {
			if got := work.Load(); got != seen {
				seen = got
				continue
			}
			require.NoError(t, n.Wait())
		}
	})
	wg.Wait()
}

// TestNotifierPingPong has two owners wake each other, so that each wake meets a wait in every
// state of going to sleep.
func TestNotifierPingPong(t *testing.T) {
	a, b := open(t), open(t)
	var turn atomic.Int64
	const rounds = 5_000
	side := func(me, other *Epoll, odd int64) {
		for {
			v := turn.Load()
			switch {
			case v >= rounds:
				other.Wake()
				return
			case v&1 == odd:
				turn.Add(1)
				other.Wake()
			default:
				if err := me.Wait(); err != nil {
					return
				}
			}
		}
	}
	wiretest.Within(t, "ping pong", func() {
		var wg sync.WaitGroup
		wg.Go(func() { side(a, b, 0) })
		wg.Go(func() { side(b, a, 1) })
		wg.Wait()
	})
}

func TestNotifierClose(t *testing.T) {
	for range 200 {
		n, err := NewEpoll()
		require.NoError(t, err)
		ended := make(chan error, 1)
		go func() {
			for {
				if err := n.Wait(); err != nil {
					ended <- err
					return
				}
			}
		}()
		go n.Wake()
		require.NoError(t, n.Close())
		wiretest.Within(t, "wait after close", func() {
			if err := <-ended; !errors.Is(err, ErrClosed) {
				t.Errorf("wait after close: %v", err)
			}
		})
		n.Wake() // harmless
		require.NoError(t, n.Close())
		require.ErrorIs(t, n.Add(0, unix.EPOLLIN), ErrClosed)
	}
}
