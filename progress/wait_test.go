package progress

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/testlevel"
)

// rounds is n, or fewer below level ci.
func rounds(n int) int {
	if !testlevel.CI() {
		return n / 10
	}
	return n
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

// Many goroutines call one engine at once, each for its own messages.
func TestConcurrentCalls(t *testing.T) {
	modes(t, func(t *testing.T, cfg Config) {
		const workers = 8
		c := newCluster(t, 2, cfg, fakeOpts{})
		n := rounds(1000)
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
				buf := make([]byte, 8)
				for i := range n {
					r := c.e[0].Irecv(1, uint64(w), exact, buf)
					if err := c.e[0].Send(bg, 1, uint64(w), buf); err != nil {
						t.Error(err)
					}
					if i%2 == 0 {
						if _, _, err := r.Test(); err != nil {
							t.Error(err)
						}
					}
					if _, err := r.Wait(bg); err != nil && (i%2 != 0 || !errors.Is(err, ErrInactive)) {
						t.Error(err)
					}
				}
			}()
		}
		wg.Wait()
		c.quiet()
	})
}

// One outcome goes to exactly one of those who wait for it.
func TestManyWaitForOneRequest(t *testing.T) {
	modes(t, func(t *testing.T, cfg Config) {
		c := newCluster(t, 2, cfg, fakeOpts{})
		for range rounds(200) {
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
		waitAll(t, []Request{r, s})
		require.Equal(t, fill(100000, byte(i)), buf)
	}
	c.quiet()
}

// Close ends those who wait, wherever they sleep.
func TestCloseWakesWaiters(t *testing.T) {
	modes(t, func(t *testing.T, cfg Config) {
		for i := range rounds(100) {
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
		n := rounds(1000)
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
