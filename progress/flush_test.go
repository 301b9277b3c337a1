package progress

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/testlevel"
	"github.com/tagmatch/tagmatch/transport"
)

// patience is the context of a call on a manual engine. The call looks at it as it begins, and from
// then on whenever it has polled in vain for a while: at the second look something happens
// elsewhere, and after so many looks that nothing more can come of it the context is over.
type patience struct {
	context.Context
	second func() // nil: it is over then
	looks  int
}

const mostLooks = 100

func (p *patience) Err() error {
	p.looks++
	if p.looks == 2 && p.second != nil {
		p.second()
	}
	if p.looks > mostLooks || p.looks > 1 && p.second == nil {
		return context.DeadlineExceeded
	}
	return nil
}

// flush checks that a Flush of rank 0 waits until something has happened, and ends then.
func (c *cluster) flush(until func()) {
	c.t.Helper()
	ctx := &patience{Context: bg, second: until}
	require.NoError(c.t, c.e[0].Flush(ctx), "after it has happened the flush goes on")
	require.Greater(c.t, ctx.looks, 1, "the flush has not waited")
	require.Empty(c.t, c.e[0].flushers)
}

// corked is a transport that has not let everything go yet.
type corked struct {
	transport.Transport
	drained bool
}

func (t *corked) Drained() bool { return t.drained }

// underWay lists what keeps rank 0 from having flushed.
func (c *cluster) underWay() (parts []string) {
	e := c.e[0]
	add := func(part string, some bool) {
		if some {
			parts = append(parts, part)
		}
	}
	add("requests", e.sends.used != 0)
	for i := range e.peers {
		p := e.peers[i]
		add("queued", !p.out.Empty())
		add("answers", len(p.fins) != 0)
		add("control", len(p.ctrls) != 0)
	}
	add("transport", !e.tr.Drained())
	return parts
}

// reads makes rank 0 receive two messages of rank 1, one of which waits for room to read: that is
// something to do again, but not to send.
func (c *cluster) reads() {
	c.net.nodes[0].holdRds = true
	for range 2 {
		c.e[0].Irecv(1, 7, exact, make([]byte, 1000))
		c.e[1].Isend(0, 7, fill(1000, 1))
		c.e[0].Poll()
	}
	require.False(c.t, c.e[0].peers[1].readq.empty())
	require.Equal(c.t, []int{1}, c.e[0].dirty)
}

// flushes are, by what is under way in rank 0 alone, how that comes about and how it ends. A packet
// fills the way to a rank.
var flushes = map[string]struct {
	begin, end func(c *cluster)
	peer       int // that it is for
}{
	"queued": {peer: 1, begin: func(c *cluster) {
		c.e[0].Isend(1, 5, fill(8, 1))
		c.e[0].Isend(1, 5, fill(8, 2))
	}, end: func(c *cluster) { c.e[1].Poll() }},

	"queued for another than the first": {peer: 2, begin: func(c *cluster) {
		c.reads()
		c.e[0].Isend(2, 5, fill(8, 1))
		c.e[0].Isend(2, 5, fill(8, 2))
	}, end: func(c *cluster) { c.e[2].Poll() }},

	"requests": {peer: 1, begin: func(c *cluster) {
		c.e[0].Isend(1, 5, fill(1000, 1))
		c.e[1].Poll()
	}, end: func(c *cluster) {
		c.e[1].Irecv(0, 5, exact, make([]byte, 1000))
		c.e[1].Poll()
	}},

	"requests that are to be withdrawn": {peer: 1, begin: func(c *cluster) {
		s := c.e[0].Isend(1, 5, fill(1000, 1))
		c.e[1].Poll()
		s.Cancel()
	}, end: func(c *cluster) { c.e[1].Poll() }},

	"answers": {peer: 1, begin: func(c *cluster) {
		c.e[0].Irecv(1, 5, exact, make([]byte, 1000))
		c.e[1].Isend(0, 5, fill(1000, 1))
		c.e[0].Isend(1, 6, nil)
		c.e[0].Poll()
	}, end: func(c *cluster) { c.e[1].Poll() }},

	"control": {peer: 1, begin: func(c *cluster) {
		s := c.e[1].Isend(0, 5, fill(1000, 1))
		c.e[0].Poll()
		s.Cancel()
		c.e[0].Isend(1, 6, nil)
		c.e[0].Poll()
	}, end: func(c *cluster) { c.e[1].Poll() }},

	"transport": {begin: func(c *cluster) { c.e[0].tr = &corked{Transport: c.e[0].tr} }, end: func(c *cluster) { c.e[0].tr.(*corked).drained = true }},
}

// TestFlushWaits checks that a flush waits for each thing that may be under way, by itself, for as
// long as it is.
func TestFlushWaits(t *testing.T) {
	for name, f := range flushes {
		t.Run(name, func(t *testing.T) {
			c := manual(t, 3, fakeOpts{room: 1})
			f.begin(c)
			parts := c.underWay()
			require.Len(t, parts, 1)
			require.Contains(t, name, parts[0])
			c.flush(func() { f.end(c) })
			require.Empty(t, c.underWay())
		})
	}
}

// TestFlushOfLost checks that what is for a rank that is lost is not waited for any longer.
func TestFlushOfLost(t *testing.T) {
	for name, f := range flushes {
		if f.peer == 0 {
			continue // what has left the engine is the transport's
		}
		t.Run(name, func(t *testing.T) {
			c := manual(t, 3, fakeOpts{room: 1})
			f.begin(c)
			c.flush(func() { c.net.kill(f.peer) })
			require.Empty(t, c.underWay())
		})
	}
}

// TestFlushGivesUp checks that a flush whose context ends is forgotten, and keeps nobody else from
// flushing.
func TestFlushGivesUp(t *testing.T) {
	c := manual(t, 2, fakeOpts{})
	s := c.e[0].Isend(1, 5, fill(1000, 1))
	require.Equal(t, context.DeadlineExceeded, c.e[0].Flush(&patience{Context: bg}))
	require.Empty(t, c.e[0].flushers)
	c.flush(func() {
		c.e[1].Irecv(0, 5, exact, make([]byte, 1000))
		c.e[1].Poll()
	})
	succeeded(t, s)
}

// TestFlushDoesNotWait checks that a flush waits for nothing that is received, nor for a receiver
// to look at what it has got.
func TestFlushDoesNotWait(t *testing.T) {
	c := manual(t, 3, fakeOpts{room: 1})
	c.reads()
	c.e[0].Irecv(AnySource, 5, exact, make([]byte, 8))
	c.e[1].Isend(0, 6, fill(1000, 1))
	c.e[0].Poll()
	c.e[0].Isend(2, 5, fill(8, 1))
	m := c.e[0].Metrics()
	require.Equal(t, []int{1, 1, 2}, []int{m.PostedNow, m.UnexpectedNow, m.ReadsNow})
	require.Len(t, c.net.nodes[2].in[0], 1)
	ctx := &patience{Context: bg}
	require.NoError(t, c.e[0].Flush(ctx))
	require.Equal(t, 1, ctx.looks, "it has ended with its first polls")
}

// waitTogether has three calls wait at the same time. The context of the second ends it alone; then
// something ends the others together.
func waitTogether(t *testing.T, call func(ctx context.Context) error, waiting func() int, end func()) {
	bounded, stop := context.WithTimeout(bg, testlevel.Patience(10*time.Second)) // a call that is forgotten would wait for ever
	defer stop()
	middle, cancel := context.WithCancel(bounded)
	var outcomes []chan error
	for i, ctx := range []context.Context{bounded, middle, bounded} {
		done := make(chan error, 1)
		go func() { done <- call(ctx) }()
		outcomes = append(outcomes, done)
		for waiting() != i+1 {
			require.NoError(t, bounded.Err(), "a call does not wait")
			runtime.Gosched()
		}
	}
	cancel()
	require.Equal(t, context.Canceled, <-outcomes[1])
	require.Equal(t, 2, waiting())
	end()
	require.NoError(t, <-outcomes[0])
	require.NoError(t, <-outcomes[2])
	require.Equal(t, context.Canceled, call(middle), "also with nothing to wait for")
}

// TestFlushesTogether checks that flushes which wait at the same time end each for itself.
func TestFlushesTogether(t *testing.T) {
	c := manual(t, 2, fakeOpts{})
	c.e[0].Isend(1, 5, fill(1000, 1))
	waitTogether(t, c.e[0].Flush, c.flushing, func() {
		c.e[1].Irecv(0, 5, exact, make([]byte, 1000))
		c.e[1].Poll()
	})
}

// flushing is how many flushes of rank 0 are under way.
func (c *cluster) flushing() int {
	c.e[0].mu.Lock()
	defer c.e[0].mu.Unlock()
	return len(c.e[0].flushers)
}
