package progress

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var rounds = flag.Int("rounds", 0, "rounds of the races of parking and waking; 0 is as many as fit a short run")

func roundsOr(n int) int {
	if *rounds != 0 {
		return *rounds
	}
	if testing.Short() {
		return n / 10
	}
	return n
}

// pingPong sends n messages forth and back between ranks 0 and 1.
func pingPong(t *testing.T, c *cluster, n int) {
	echo := make(chan error, 1)
	go func() {
		buf := make([]byte, 8)
		for range n {
			if _, err := c.e[1].Recv(bg, 0, 1, exact, buf); err != nil {
				echo <- err
				return
			}
			if err := c.e[1].Send(bg, 0, 1, buf); err != nil {
				echo <- err
				return
			}
		}
		echo <- nil
	}()
	buf := make([]byte, 8)
	for i := range n {
		require.NoError(t, c.e[0].Send(bg, 1, 1, fill(8, byte(i))))
		_, err := c.e[0].Recv(bg, 1, 1, exact, buf)
		require.NoError(t, err)
		require.Equal(t, fill(8, byte(i)), buf)
	}
	require.NoError(t, <-echo)
}

func modes(t *testing.T, run func(t *testing.T, cfg Config)) {
	for _, manual := range []bool{false, true} {
		for _, spin := range []time.Duration{0, -1} {
			t.Run(fmt.Sprintf("manual=%v spin=%v", manual, spin), func(t *testing.T) {
				run(t, Config{Manual: manual, SpinLimit: spin})
			})
		}
	}
}

// Parking at once makes each message a race between going to sleep and being woken.
func TestParkWakeRace(t *testing.T) {
	modes(t, func(t *testing.T, cfg Config) {
		c := newCluster(t, 2, cfg, fakeOpts{})
		pingPong(t, c, roundsOr(20000))
		if cfg.SpinLimit < 0 {
			require.NotZero(t, c.e[0].Metrics().Parks)
		}
		c.quiet()
	})
}

func TestOneProcessor(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	modes(t, func(t *testing.T, cfg Config) {
		c := newCluster(t, 2, cfg, fakeOpts{})
		start := time.Now()
		pingPong(t, c, 10000)
		t.Log(time.Since(start) / 10000)
	})
}

// Many goroutines wait on one engine at once, each for its own messages; the role of polling goes
// from hand to hand and must never be lost, whoever leaves and why.
func TestConcurrentWaiters(t *testing.T) {
	modes(t, func(t *testing.T, cfg Config) {
		const workers = 8
		c := newCluster(t, 2, cfg, fakeOpts{})
		n := roundsOr(1000)
		var wg sync.WaitGroup
		for w := range workers {
			wg.Add(2)
			go func() {
				defer wg.Done()
				buf := make([]byte, 8)
				for range n {
					if _, err := c.e[1].Recv(bg, 0, uint64(w), exact, buf); err != nil {
						t.Error(err)
					}
					if err := c.e[1].Send(bg, 0, uint64(w), buf); err != nil {
						t.Error(err)
					}
				}
			}()
			go func() {
				defer wg.Done()
				rng := rand.New(rand.NewPCG(uint64(w), 0))
				buf := make([]byte, 8)
				for range n {
					r := c.e[0].Irecv(1, uint64(w), exact, buf)
					if err := c.e[0].Send(bg, 1, uint64(w), buf); err != nil {
						t.Error(err)
					}
					waitSomehow(t, rng, r)
				}
			}()
		}
		wg.Wait()
		c.quiet()
		for _, e := range c.e {
			require.Nil(t, e.wait.parked.head)
			require.False(t, e.wait.polling.Load())
		}
	})
}

// waitSomehow completes r by one of the ways there are, deadlines that end in the middle included.
func waitSomehow(t *testing.T, rng *rand.Rand, r Request) {
	switch rng.IntN(4) {
	case 0:
		ctx, cancel := context.WithTimeout(bg, time.Duration(rng.IntN(100))*time.Microsecond)
		_, err := r.Wait(ctx)
		cancel()
		if err == nil {
			return
		}
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	case 1:
		if _, done, err := r.Test(); done {
			if err != nil {
				t.Error(err)
			}
			return
		}
	case 2:
		if r.op.e.loop.running {
			<-r.Done()
		}
	}
	if _, err := r.Wait(bg); err != nil {
		t.Error(err)
	}
}

// One outcome goes to exactly one of those who wait for it.
func TestManyWaitForOneRequest(t *testing.T) {
	modes(t, func(t *testing.T, cfg Config) {
		c := newCluster(t, 2, cfg, fakeOpts{})
		for range roundsOr(200) {
			r := c.e[0].Irecv(1, 1, exact, nil)
			var got atomic.Int32
			var wg sync.WaitGroup
			for range 4 {
				wg.Add(1)
				go func() {
					defer wg.Done()
					switch _, err := r.Wait(bg); {
					case err == nil:
						got.Add(1)
					case !errors.Is(err, ErrInactive):
						t.Error(err)
					}
				}()
			}
			if err := c.e[1].Send(bg, 0, 1, nil); err != nil {
				t.Fatal(err)
			}
			wg.Wait()
			require.EqualValues(t, 1, got.Load())
		}
	})
}

// Without a call into the library, operations move and Done closes.
func TestProgressGoroutine(t *testing.T) {
	c := newCluster(t, 2, Config{}, fakeOpts{})
	for i := range 20 {
		buf := make([]byte, 100000)
		r := c.e[1].Irecv(0, 1, exact, buf)
		s := c.e[0].Isend(1, 1, fill(100000, byte(i)))
		<-r.Done()
		<-s.Done()
		_, err := r.Wait(bg)
		require.NoError(t, err)
		_, err = s.Wait(bg)
		require.NoError(t, err)
		require.Equal(t, fill(100000, byte(i)), buf)
	}
	c.quiet()
}

// Who waits with nothing to come sleeps: after a while nothing polls any more.
func TestIdleSleeps(t *testing.T) {
	for _, manual := range []bool{false, true} {
		c := newCluster(t, 2, Config{Manual: manual}, fakeOpts{})
		got := make(chan error, 2)
		for i := range 2 {
			go func() {
				_, err := c.e[0].Recv(bg, 1, uint64(i), exact, nil)
				got <- err
			}()
		}
		n := c.net.nodes[0]
		asleep := func() bool {
			c.net.mu.Lock()
			defer c.net.mu.Unlock()
			return n.waiting == 1 && n.armed && len(n.notify) == 0
		}
		bothParked := func() bool { return c.e[0].Metrics().Parks >= 2 && asleep() }
		require.Eventually(t, bothParked, 10*time.Second, time.Millisecond)
		before := c.e[0].Metrics()
		for range 50 {
			time.Sleep(time.Millisecond)
			require.True(t, asleep())
		}
		after := c.e[0].Metrics()
		require.LessOrEqual(t, after.Sleeps, before.Sleeps+1)
		for i := range 2 {
			require.NoError(t, c.e[1].Send(bg, 0, uint64(i), nil))
		}
		require.NoError(t, <-got)
		require.NoError(t, <-got)
	}
}

// Close ends those who wait, wherever they sleep.
func TestCloseWakesWaiters(t *testing.T) {
	modes(t, func(t *testing.T, cfg Config) {
		for i := range roundsOr(100) {
			c := newCluster(t, 2, cfg, fakeOpts{})
			got := make(chan error, 3)
			for range 3 {
				go func() {
					_, err := c.e[0].Recv(bg, 1, 1, exact, nil)
					got <- err
				}()
			}
			if i%2 == 0 {
				time.Sleep(time.Duration(i) * 10 * time.Microsecond)
			}
			require.NoError(t, c.e[0].Close(nil))
			for range 3 {
				require.Equal(t, ErrClosed, <-got)
			}
		}
	})
}

// Large and small messages in both directions at once, in a transport with little room.
func TestCrossfire(t *testing.T) {
	modes(t, func(t *testing.T, cfg Config) {
		cfg.UnexpectedLimit = 16 << 10
		c := newCluster(t, 2, cfg, fakeOpts{room: 4, maxRead: 1000})
		n := roundsOr(1000)
		done := make(chan error, 2)
		for me := range 2 {
			go func() { done <- crossfire(c.e[me], 1-me, n) }()
		}
		require.NoError(t, <-done)
		require.NoError(t, <-done)
		// A rank that only gets Fin and grants still has them to process.
		for range 2 {
			for _, e := range c.e {
				e.Poll()
			}
		}
	})
}

func crossfire(e *Engine, peer, n int) error {
	const window = 16
	var recvs, sends [window]Request
	bufs := make([][]byte, window)
	for i := range n + window {
		k := i % window
		if i >= window {
			if _, err := sends[k].Wait(bg); err != nil {
				return fmt.Errorf("send %d: %w", i-window, err)
			}
			st, err := recvs[k].Wait(bg)
			if err != nil {
				return fmt.Errorf("receive %d: %w", i-window, err)
			}
			want := fill((i-window)*37%3000, byte(i-window))
			if string(bufs[k][:st.Len]) != string(want) {
				return fmt.Errorf("message %d of %d bytes is wrong", i-window, st.Len)
			}
		}
		if i < n {
			bufs[k] = make([]byte, 3000)
			recvs[k] = e.Irecv(peer, 1, exact, bufs[k])
			sends[k] = e.Isend(peer, 1, fill(i*37%3000, byte(i)))
		}
	}
	return e.Flush(bg)
}

// parkedWaiters waits until n goroutines sleep in e, one of them perhaps in the transport.
func parkedWaiters(t *testing.T, e *Engine, n int) {
	require.Eventually(t, func() bool {
		e.lock()
		defer e.mu.Unlock()
		k := 0
		for w := e.wait.parked.head; w != nil; w = w.next {
			k++
		}
		if e.wait.sleeper != nil {
			k++
		}
		return k == n
	}, 10*time.Second, 10*time.Microsecond)
}

// Three wait. The one that polls gets its message just when the context of the next in line ends:
// the third must get the role from one or the other.
func TestRoleIsHandedOver(t *testing.T) {
	modes(t, func(t *testing.T, cfg Config) {
		c := newCluster(t, 2, cfg, fakeOpts{})
		e := c.e[0]
		for i := range roundsOr(300) {
			got := make([]chan error, 3)
			ctx, cancel := context.WithCancel(bg)
			for k := range got {
				got[k] = make(chan error, 1)
				go func() {
					ctx := ctx
					if k != 1 {
						ctx = bg
					}
					_, err := e.Recv(ctx, 1, uint64(k), exact, nil)
					got[k] <- err
				}()
				parkedWaiters(t, e, k+1)
			}
			if i%2 == 0 {
				go cancel()
			}
			require.NoError(t, c.e[1].Send(bg, 0, 0, nil))
			require.NoError(t, <-got[0])
			cancel()
			require.Equal(t, context.Canceled, <-got[1])
			require.NoError(t, c.e[1].Send(bg, 0, 2, nil))
			require.NoError(t, <-got[2])
		}
	})
}

// One poll brings the messages of the poller and of the next in line. That one was to have the role
// and does not need it any more: it has to pass it on.
func TestRoleIsPassedOn(t *testing.T) {
	modes(t, func(t *testing.T, cfg Config) {
		c := newCluster(t, 2, cfg, fakeOpts{})
		e := c.e[0]
		for range roundsOr(200) {
			got := make([]chan error, 3)
			for k := range got {
				got[k] = make(chan error, 1)
				go func() {
					_, err := e.Recv(bg, 1, uint64(k), exact, nil)
					got[k] <- err
				}()
				parkedWaiters(t, e, k+1)
			}
			e.lock()
			for k := range 2 {
				require.NoError(t, c.e[1].Send(bg, 0, uint64(k), nil))
			}
			e.mu.Unlock()
			require.NoError(t, <-got[0])
			require.NoError(t, <-got[1])
			require.NoError(t, c.e[1].Send(bg, 0, 2, nil))
			require.NoError(t, <-got[2])
		}
	})
}
