package soft

import (
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func openNotifier(t testing.TB) *epollNotifier {
	n, err := newNotifier()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, n.close()) })
	return n
}

func TestNotifierWakeBeforeWait(t *testing.T) {
	n := openNotifier(t)
	n.wake()
	n.wake()
	within(t, "wait after wake", func() { require.NoError(t, n.wait()) })
}

// readyNow tells, without waiting, which descriptors a wait would end for.
func readyNow(n *epollNotifier, events []unix.EpollEvent) int {
	k, _ := unix.EpollWait(n.epfd, events, 0)
	return max(k, 0)
}

func TestNotifierDescriptor(t *testing.T) {
	n := openNotifier(t)
	var p [2]int
	require.NoError(t, unix.Pipe2(p[:], unix.O_CLOEXEC|unix.O_NONBLOCK))
	defer unix.Close(p[0])
	defer unix.Close(p[1])
	require.NoError(t, n.add(p[0], unix.EPOLLIN))
	for range 100 {
		woken := make(chan error, 1)
		go func() { woken <- n.wait() }()
		_, err := unix.Write(p[1], []byte{1})
		require.NoError(t, err)
		within(t, "wait", func() { require.NoError(t, <-woken) })
		var ev [4]unix.EpollEvent
		require.Equal(t, 1, readyNow(n, ev[:]))
		require.Equal(t, int32(p[0]), ev[0].Fd)
		// Level-triggered: as long as nobody reads, every wait returns.
		within(t, "wait again", func() { require.NoError(t, n.wait()) })
		_, err = unix.Read(p[0], make([]byte, 1))
		require.NoError(t, err)
	}
	// Silenced, the descriptor is not seen; with its events back, it is at once.
	require.NoError(t, n.mod(p[0], 0))
	_, err := unix.Write(p[1], []byte{1})
	require.NoError(t, err)
	var ev [4]unix.EpollEvent
	require.Zero(t, readyNow(n, ev[:]))
	woken := make(chan error, 1)
	go func() { woken <- n.wait() }()
	require.NoError(t, n.mod(p[0], unix.EPOLLIN))
	within(t, "wait after mod", func() { require.NoError(t, <-woken) })
	require.NoError(t, n.del(p[0]))
	require.Zero(t, readyNow(n, ev[:]))
}

// TestNotifierNoLostWake plays the owner's protocol against producers: look for work, wait when
// there is none. A lost wake-up leaves the owner asleep for ever.
func TestNotifierNoLostWake(t *testing.T) {
	n := openNotifier(t)
	rounds := 200_000
	if testing.Short() {
		rounds = 20_000
	}
	const producers = 3
	var work atomic.Int64
	var wg sync.WaitGroup
	for p := range producers {
		wg.Go(func() {
			for i := range rounds {
				work.Add(1)
				n.wake()
				if i%(100+p) == 0 {
					runtime.Gosched()
				}
			}
		})
	}
	within(t, "rounds", func() {
		for seen := int64(0); seen < int64(producers*rounds); {
			if got := work.Load(); got != seen {
				seen = got
				continue
			}
			require.NoError(t, n.wait())
		}
	})
	wg.Wait()
}

// TestNotifierPingPong has two owners wake each other, so that each wake meets a wait in every
// state of going to sleep.
func TestNotifierPingPong(t *testing.T) {
	a, b := openNotifier(t), openNotifier(t)
	var turn atomic.Int64
	const rounds = 5_000
	side := func(me, other *epollNotifier, odd int64) {
		for {
			v := turn.Load()
			switch {
			case v >= rounds:
				other.wake()
				return
			case v&1 == odd:
				turn.Add(1)
				other.wake()
			default:
				if err := me.wait(); err != nil {
					return
				}
			}
		}
	}
	within(t, "ping pong", func() {
		var wg sync.WaitGroup
		wg.Go(func() { side(a, b, 0) })
		wg.Go(func() { side(b, a, 1) })
		wg.Wait()
	})
}

func TestNotifierClose(t *testing.T) {
	for range 200 {
		n, err := newNotifier()
		require.NoError(t, err)
		ended := make(chan error, 1)
		go func() {
			for {
				if err := n.wait(); err != nil {
					ended <- err
					return
				}
			}
		}()
		go n.wake()
		require.NoError(t, n.close())
		within(t, "wait after close", func() {
			if err := <-ended; !errors.Is(err, errNotifierClosed) {
				t.Errorf("wait after close: %v", err)
			}
		})
		n.wake() // harmless
		require.NoError(t, n.close())
		require.ErrorIs(t, n.add(0, unix.EPOLLIN), errNotifierClosed)
	}
}
