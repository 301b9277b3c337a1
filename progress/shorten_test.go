package progress

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

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

// crowded is a cluster in which one message waits for room from rank 0 to rank 1, as after a crowd
// of them, and one goroutine of rank 0 is parked if sleeper is set. Nobody else polls.
func crowded(t *testing.T, sleeper bool) (c *cluster, tr *polled, queued Request) {
	c = unstarted(t, 2, Config{}, fakeOpts{room: 2})
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
			asleep = e.wait.MayHelp()
			e.mu.Unlock()
		}
	}
	for range 2 {
		succeeded(t, e.Isend(1, 1, nil))
	}
	queued = e.Isend(1, 1, nil)
	require.False(t, queued.Over())
	tr = &polled{Transport: e.tr}
	e.tr = tr
	e.peers[1].out.patience = shortenVain
	return c, tr, queued
}

// An Isend polls until the queue is empty, and needs no place in it then.
func TestIsendShortens(t *testing.T) {
	c, tr, queued := crowded(t, true)
	tr.do = func(poll int) {
		if poll == 3 {
			c.e[1].Poll()
		}
	}
	require.True(t, c.e[0].Isend(1, 1, nil).Over())
	require.Equal(t, 3, tr.polls)
	require.True(t, queued.Over())
	require.Equal(t, shortenVain, c.e[0].peers[1].out.patience)
}

// It waits in the queue at once where nobody sleeps, the queue was never long, the head of the
// queue lacks credit, or other ranks want the processor; and with others by one call.
func TestIsendShortensNothing(t *testing.T) {
	for name, set := range map[string]func(e *Engine){
		"nobody sleeps": nil,
		"short queue":   func(e *Engine) { e.peers[1].out.patience = 0 },
		"no credit":     func(e *Engine) { e.peers[1].out.charged = e.peers[1].out.allowed },
		"shared":        func(e *Engine) { e.wait.Share(2, 1) },
		"no such rank":  func(e *Engine) { require.ErrorIs(t, isendTo(e, 2), ErrInvalid) },
		"many": func(e *Engine) {
			p := e.Poster()
			var r Request
			p.Isend(1, 1, nil, 0, &r)
			p.Done()
			require.False(t, r.Over())
		},
	} {
		t.Run(name, func(t *testing.T) {
			c, tr, _ := crowded(t, set != nil)
			if set != nil {
				set(c.e[0])
			}
			if name != "no such rank" && name != "many" {
				require.False(t, c.e[0].Isend(1, 1, nil).Over())
			}
			require.Zero(t, tr.polls)
		})
	}
}

func isendTo(e *Engine, dst int) error {
	_, _, err := e.Isend(dst, 1, nil).Peek()
	return err
}

// It stops where somebody wants the lock, or credit is gone.
func TestIsendShortensNoLonger(t *testing.T) {
	var want atomic.Bool
	for name, end := range map[string]func(e *Engine){
		"wanted": func(e *Engine) {
			for want.Store(true); !e.mu.Wanted(); {
				runtime.Gosched()
			}
		},
		"no credit": func(e *Engine) { e.peers[1].out.charged = e.peers[1].out.allowed },
	} {
		t.Run(name, func(t *testing.T) {
			c, tr, _ := crowded(t, true)
			e := c.e[0]
			tr.do = func(poll int) {
				if poll == 3 {
					end(e)
				}
			}
			if name == "wanted" {
				go func() {
					for !want.Load() {
						runtime.Gosched()
					}
					e.mu.Lock()
					defer e.mu.Unlock()
				}()
			}
			require.False(t, e.Isend(1, 1, nil).Over())
			require.Equal(t, 3, tr.polls)
		})
	}
}

// What a poll finds is the Isend's outcome.
func TestIsendShortensToError(t *testing.T) {
	boom := errors.New("boom")
	for name, test := range map[string]struct {
		end func(c *cluster)
		err error
	}{
		"lost":   {func(c *cluster) { c.net.kill(1) }, ErrPeerLost},
		"broken": {func(c *cluster) { c.e[0].breakLocked(boom) }, boom},
	} {
		t.Run(name, func(t *testing.T) {
			c, tr, _ := crowded(t, true)
			tr.do = func(poll int) {
				if poll == 3 {
					test.end(c)
				}
			}
			_, over, err := c.e[0].Isend(1, 1, nil).Peek()
			require.True(t, over)
			require.ErrorIs(t, err, test.err)
			require.Equal(t, 3, tr.polls)
		})
	}
}

// A peer that takes nothing is polled for no longer in the end.
func TestIsendShortensInVain(t *testing.T) {
	c, tr, _ := crowded(t, true)
	o := &c.e[0].peers[1].out
	for n := 0; o.patience > 0; n++ {
		require.Less(t, n, 10*int(shortenVain/shortenFor))
		before := o.patience
		require.False(t, c.e[0].Isend(1, 1, nil).Over())
		require.Less(t, o.patience, before)
	}
	tr.polls = 0
	require.False(t, c.e[0].Isend(1, 1, nil).Over())
	require.Zero(t, tr.polls)
}

// Isends poll from where a message leaves a long queue.
func TestIsendShortensLong(t *testing.T) {
	c := unstarted(t, 2, Config{}, fakeOpts{room: 1})
	leave := func() time.Duration {
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
	require.Equal(t, shortenVain, leave())
}
