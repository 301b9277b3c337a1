package progress

import (
	"context"
	"errors"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/invariant"
)

// full is a cluster in which rank 0 has no room for one more send that waits; the requests are
// those that do, to rank 1.
func full(t *testing.T, cfg Config) (*cluster, []Request) {
	cfg.SendLimit, cfg.UnexpectedLimit = 2*sendCost+10, tightLimit(3)
	c := newCluster(t, 3, cfg, fakeOpts{})
	reqs := []Request{c.holdUp(0, 1)}
	require.NoError(t, c.e[0].Room(bg), "there is room for one more")
	reqs = append(reqs, c.e[0].Isend(1, 1, fill(200, 1)))
	_, err := ended(t, c.e[0].Isend(1, 1, nil))
	require.ErrorIs(t, err, ErrFull)
	require.ErrorContains(t, err, "Room")
	succeeded(t, c.e[0].Isend(2, 1, nil)) // needs no room
	return c, reqs
}

// TestSendCost: SendLimit bounds memory, so that a send that waits must not take more than it says,
// nor much less.
func TestSendCost(t *testing.T) {
	const n = 20_000
	heap := func() int64 {
		runtime.GC()
		runtime.GC() // what was in pools goes with the second
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	c := manual(t, 2, fakeOpts{room: 1})
	before := heap()
	for range n {
		c.e[0].Isend(1, 1, nil)
	}
	each := (heap() - before) / n
	runtime.KeepAlive(c)
	require.Greater(t, each, int64(sendCost*3/4))
	if !invariant.Enabled { // which keeps a record of each request
		require.LessOrEqual(t, each, int64(sendCost))
	}
}

// Who waits looks for refused calls as long as there is one that was not reported, in whatever way.
func TestRefusalsEnd(t *testing.T) {
	c, _ := full(t, Config{Manual: true})
	q, before := c.e[0].NewQueue(1), refusals.Load()
	for name, report := range map[string]func(r Request) error{
		"Wait": func(r Request) error { _, err := r.Wait(bg); return err },
		"Test": func(r Request) error { _, _, err := r.Test(); return err },
		"Taker": func(r Request) error {
			var taker Taker
			defer taker.Done()
			require.Error(t, taker.Refused(r))
			_, _, _, err := taker.Take(r)
			return err
		},
		"Queue": func(r Request) error {
			var out [1]Completion
			r.Notify(q, Label{})
			require.Equal(t, 1, q.Poll(out[:]))
			return out[0].Err
		},
		"Free": func(r Request) error { r.Free(); return ErrFull },
	} {
		for _, refused := range []func() Request{
			func() Request { return c.e[0].Isend(1, 1, nil) },
			func() Request { return Failed(ErrFull) },
		} {
			r := refused()
			require.Equal(t, before+1, refusals.Load(), name)
			require.ErrorIs(t, report(r), ErrFull, name)
			require.Equal(t, before, refusals.Load(), name)
		}
	}
}

// rooms is how many calls of Room wait.
func (c *cluster) rooms() int {
	c.e[0].mu.Lock()
	defer c.e[0].mu.Unlock()
	return len(c.e[0].backlog.rooms)
}

// Room returns as soon as a send that waits has gone, however, and not before.
func TestRoomWaits(t *testing.T) {
	for name, end := range map[string]func(c *cluster){
		"received": func(c *cluster) {
			c.e[1].Irecv(0, 1, exact, nil)
			for range 2 {
				c.e[1].Poll()
				c.e[1].Irecv(0, 1, exact, nil)
			}
		},
		"wanted": func(c *cluster) {
			c.e[1].Poll()
			c.e[1].Irecv(0, 1, exact, nil)
			for range 4 {
				c.e[1].Irecv(0, 1, exact, nil)
			}
		},
		"lost": func(c *cluster) { c.net.kill(1) },
	} {
		t.Run(name, func(t *testing.T) {
			c, _ := full(t, Config{Manual: true})
			ctx := &patience{Context: bg}
			require.Equal(t, context.DeadlineExceeded, c.e[0].Room(ctx))
			require.Zero(t, c.rooms(), "a call that has given up is forgotten")
			ctx = &patience{Context: bg, second: func() {
				require.Len(t, c.e[0].backlog.rooms, 1)
				end(c)
			}}
			require.NoError(t, c.e[0].Room(ctx))
			require.Greater(t, ctx.looks, 1, "it has not waited")
			require.Empty(t, c.e[0].backlog.rooms)
			require.False(t, c.e[0].backlog.full())
			_, _, err := c.e[0].Isend(1, 1, nil).Test()
			require.NotErrorIs(t, err, ErrFull)
		})
	}
}

// Calls of Room that wait at the same time are woken together; those whose context ends, alone.
func TestRoomsTogether(t *testing.T) {
	c, reqs := full(t, Config{})
	waitTogether(t, c.e[0].Room, c.rooms, reqs[1].Cancel)
}

// The end of the engine ends Room.
func TestRoomEnds(t *testing.T) {
	boom := errors.New("boom")
	for _, end := range []func(e *Engine){
		func(e *Engine) { require.NoError(t, e.Close(boom)) },
		func(e *Engine) { e.Abort(boom) },
	} {
		c, _ := full(t, Config{})
		done := make(chan error, 1)
		go func() { done <- c.e[0].Room(bg) }()
		for c.rooms() != 1 {
			runtime.Gosched()
		}
		end(c.e[0])
		require.Equal(t, boom, <-done)
		require.Equal(t, boom, c.e[0].Room(bg))
		require.Zero(t, c.rooms())
	}
}

// One send may wait however small the limit is, or nothing would ever go; a blocking call needs no
// room.
func TestSendLimitOfNothing(t *testing.T) {
	c := newCluster(t, 2, Config{Manual: true, SendLimit: 1, UnexpectedLimit: tightLimit(2)}, fakeOpts{})
	require.NoError(t, c.e[0].Room(bg))
	c.holdUp(0, 1)
	_, err := ended(t, c.e[0].Isend(1, 1, nil))
	require.ErrorIs(t, err, ErrFull)
	ctx := &patience{Context: bg, second: func() {
		for range inCredit + 2 {
			c.e[1].Irecv(0, 1, exact, nil)
		}
		c.e[1].Poll()
	}}
	require.NoError(t, c.e[0].Send(ctx, 1, 1, nil))
	require.NoError(t, c.e[0].Room(bg))
	c.step()
	c.free()
	c.quiet()
}

// A flush waits for sends that are held up.
func TestFlushWaitsForHeldUp(t *testing.T) {
	c := tight(t, 2, fakeOpts{})
	c.holdUp(0, 1)
	c.e[1].Poll()
	require.Equal(t, []string{"queued"}, c.underWay())
	c.flush(func() {
		for range 2 {
			c.e[1].Irecv(0, 1, exact, nil)
		}
	})
	require.Empty(t, c.underWay())
}

// A send whose peer has its share of the transport's memory regions waits behind its own peer only,
// until one of them is free.
func TestRegionsRunOut(t *testing.T) {
	const regions = 4
	c := manual(t, 3, fakeOpts{regions: regions})
	var sends []Request
	for i := range 3 * regions {
		sends = append(sends, c.e[0].Isend(1, 5, fill(1000, byte(i))))
	}
	c.step()
	require.Equal(t, 2*regions, c.waiting(0, 1))
	other := c.e[0].Isend(2, 5, fill(1000, 99))
	require.Equal(t, fill(1000, 99), c.take(0, 2, 5))
	succeeded(t, other)
	for i := range sends {
		require.Equal(t, fill(1000, byte(i)), c.take(0, 1, 5))
	}
	succeeded(t, sends...)
	require.Zero(t, c.e[0].Metrics().HeldUp, "this is no credit")
	c.quiet()
}

// A peer that does not receive takes no request slot that another needs: what waits for one waits
// behind its own peer only.
func TestSlotsAreShared(t *testing.T) {
	const size, limit = 6, 80
	c := manual(t, size, fakeOpts{})
	e := c.e[0]
	e.sends.limit = limit
	var sends []Request
	send := func(dst, count int) {
		for range count {
			sends = append(sends, e.Isend(dst, 1, fill(1000, 1)))
		}
	}
	for dst := 1; dst < 5; dst++ {
		left := limit - e.sends.used
		send(dst, limit)
		o := e.peers[dst]
		require.Positive(t, o.requests)
		require.LessOrEqual(t, o.requests, max((left-size+1)/2, 1), "rank %d has more than its share", dst)
		require.Equal(t, limit-o.requests, c.waiting(0, dst))
		require.GreaterOrEqual(t, limit-e.sends.used, size-dst, "nothing is left for the next")
	}
	require.Greater(t, e.peers[1].requests, limit/4, "the first has next to nothing")
	send(5, 1)
	c.take(0, 5, 1)

	for range limit { // each of them goes on, whatever the others have under way
		for dst := 1; dst < 5; dst++ {
			c.take(0, dst, 1)
		}
	}
	waitAll(t, sends)
	require.Zero(t, e.Metrics().HeldUp, "this is no credit")
	c.quiet()
}

// TestNoSlotForRead: a receive that cannot read its message fails, and the sender hears of it.
func TestNoSlotForRead(t *testing.T) {
	c := newCluster(t, 2, Config{Manual: true}, fakeOpts{})
	c.e[1].reads.limit = 0
	send := c.e[0].Isend(1, 5, fill(100_000, 1))
	r := c.e[1].Irecv(0, 5, exact, make([]byte, 100_000))
	c.step()
	_, err := ended(t, r)
	require.ErrorIs(t, err, ErrFull)
	succeeded(t, send)
	c.quiet()
}
