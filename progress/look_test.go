package progress

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/testlevel"
)

// group is the group of a look with these facts, which must be there.
func group(t *testing.T, l *Look, kind UnfinishedKind, tag uint64) Group {
	t.Helper()
	i := slices.IndexFunc(l.Groups, func(g Group) bool { return g.Kind == kind && g.Tag == tag })
	require.GreaterOrEqual(t, i, 0, "%+v", l.Groups)
	return l.Groups[i]
}

// other is what is known of the rank that is not this one.
func other(l *Look) PeerLook {
	return l.Peers[slices.IndexFunc(l.Peers, func(p PeerLook) bool { return p.Connected && p.Sent+p.Came != 0 })]
}

// TestLook has one of everything, and finds it.
func TestLook(t *testing.T) {
	c := newCluster(t, 2, Config{Manual: true, UnexpectedLimit: 64 << 10}, fakeOpts{maxEager: 1000})
	a, b := c.e[0], c.e[1]
	buf := make([]byte, 1000)
	requests := []Request{a.Irecv(1, 1, exact, buf), a.Irecv(1, 1, exact, buf), a.Irecv(AnySource, 2, ^uint64(3), buf[:10])}
	b.Isend(0, 70, buf[:5])
	requests = append(requests, b.Isend(0, 71, make([]byte, 2000)))
	c.step()
	for range 200 { // more than a has memory for
		requests = append(requests, b.Isend(0, 72, buf))
	}
	c.step()
	l := a.Look()
	require.Equal(t, Group{Unfinished{StagePosted, UnfinishedRecv, 1, 1, exact, 1000}, 2, 0, 0, nil, 1}, group(t, l, UnfinishedRecv, 1))
	require.Equal(t, Unfinished{StagePosted, UnfinishedRecv, AnySource, 0, ^uint64(3), 10}, group(t, l, UnfinishedRecv, 0).Unfinished)
	require.Equal(t, Unfinished{StageHere, UnfinishedMessage, 1, 70, exact, 5}, group(t, l, UnfinishedMessage, 70).Unfinished)
	require.Equal(t, Unfinished{StageAnnounced, UnfinishedMessage, 1, 71, exact, 2000}, group(t, l, UnfinishedMessage, 71).Unfinished)
	require.Equal(t, l.Moved, a.Look().Moved)
	require.Len(t, l.Peers, 2)
	require.True(t, other(l).HoldsUp && other(l).Connected && !other(l).HeldUp)
	require.NotZero(t, other(l).Charged)

	l = b.Look()
	require.Equal(t, Unfinished{StageRequested, UnfinishedSend, 0, 71, exact, 2000}, group(t, l, UnfinishedSend, 71).Unfinished)
	held := group(t, l, UnfinishedSend, 72)
	require.Equal(t, StageHeld, held.Stage)
	require.Len(t, l.Peers, 2)
	require.True(t, other(l).HeldUp && other(l).Connected && !other(l).HoldsUp)
	require.Equal(t, []int{held.N, 3}, []int{other(l).Queued, other(l).Wants}, "three receives wait for others")
	require.Equal(t, 200, held.N+group(t, a.Look(), UnfinishedMessage, 72).N)

	to, back := other(l), other(a.Look())
	require.Equal(t, []uint64{to.Sent, to.Allowed, to.Heard, uint64(to.Episode)}, []uint64{back.Came, back.Granted, back.Asked, uint64(back.Seen)})
	require.Equal(t, []uint64{3, 1}, []uint64{to.Heard, uint64(to.Episode)})

	for _, r := range requests {
		r.Free()
	}
	c.net.kill(1)
	c.step()
	l = a.Look()
	require.Equal(t, 1, l.Losses)
	require.Equal(t, 1, l.Lost[0].Rank)
	require.Error(t, l.Lost[0].Cause)
	require.Equal(t, []Unacked{{Ranks: []int{1}}}, l.Unacked)
	a.AckFailures(AnySource, 1)
	require.Empty(t, a.Look().Unacked)
	require.NoError(t, a.Close(nil))
	require.ErrorIs(t, a.Look().Broken, ErrClosed)
}

// TestLookMoved: whatever moves changes the count.
func TestLookMoved(t *testing.T) {
	c := manual(t, 2, fakeOpts{})
	buf := make([]byte, 8)
	last := c.e[1].Look().Moved
	moved := func(what string) {
		t.Helper()
		now := c.e[1].Look().Moved
		require.Greater(t, now, last, what)
		require.Equal(t, now, c.e[1].Look().Moved, "a look itself moves nothing")
		last = now
	}
	c.e[0].Isend(1, 1, buf)
	c.step()
	moved("a message has come")
	r := c.e[1].Irecv(0, 1, exact, buf)
	moved("it was received")
	_, _, _ = r.Test()
	r = c.e[1].Irecv(0, 2, exact, buf)
	moved("a receive was posted")
	r.Cancel()
	moved("it has ended")
	c.e[1].Isend(0, 3, buf)
	moved("an eager message was sent")
}

// TestLookAwaited: what a goroutine sleeps for is told apart, be it by a blocking call, by a wait
// for any of several requests, or at a queue.
func TestLookAwaited(t *testing.T) {
	c := newCluster(t, 1, Config{}, fakeOpts{})
	e, buf := c.e[0], make([]byte, 8)
	ctx, cancel := context.WithCancel(bg)
	ended := make(chan struct{}, 3)
	wait := func(f func()) {
		go func() {
			f()
			ended <- struct{}{}
		}()
	}
	wait(func() { _, _ = e.Recv(ctx, 0, 1, exact, buf) })
	any := []Request{e.Irecv(0, 2, exact, buf), e.Irecv(0, 2, exact, buf)}
	wait(func() { _ = e.AwaitAny(ctx, len(any), func(i int) Request { return any[i] }) })
	q := e.NewQueue(1)
	e.Irecv(0, 3, exact, buf).Notify(q, Label{})
	wait(func() { _, _ = q.Wait(ctx, make([]Completion, 1)) })
	idle := e.Irecv(0, 4, exact, buf)
	var l *Look // the next one may find a goroutine that is awake for a moment
	require.Eventually(t, func() bool {
		l = e.Look()
		n := 0
		for _, g := range l.Groups {
			n += g.Awaited
		}
		return n == 4 && len(l.Groups) == 4 && l.Waiting == 3 // who waits at a queue is awaited before it sleeps
	}, testlevel.Patience(time.Minute), time.Millisecond)
	require.Equal(t, []int{3, 0, 0}, []int{l.Waiting, l.Flushing, l.Timed})
	require.Equal(t, 2, group(t, l, UnfinishedRecv, 2).Awaited)
	require.Zero(t, group(t, l, UnfinishedRecv, 4).Awaited)
	require.EqualValues(t, 4, l.Groups[3].Tag, "it comes last, as nobody waits for it")
	cancel()
	for range 3 {
		<-ended
	}
	for _, r := range append(any, idle) {
		r.Cancel()
		r.Free()
	}
	require.NoError(t, q.Close())
}

// TestLookManyKinds: a look is short, whatever there is.
func TestLookManyKinds(t *testing.T) {
	c := manual(t, 1, fakeOpts{})
	e, n := c.e[0], mostGroups+1000
	var requests []Request
	for tag := range uint64(n) {
		requests = append(requests, e.Irecv(0, tag, exact, nil))
	}
	l := e.Look()
	require.Len(t, l.Groups, MostListed)
	require.Equal(t, n-MostListed, l.Rest[UnfinishedRecv])
	for i, g := range l.Groups {
		require.EqualValues(t, i, g.Tag, "the oldest are listed")
	}
	for _, r := range requests {
		r.Cancel()
		r.Free()
	}
}

// TestLookOpen counts requests that nobody has completed.
func TestLookOpen(t *testing.T) {
	c := newCluster(t, 2, Config{Manual: true, UnexpectedLimit: 1 << 30}, fakeOpts{})
	e, n := c.e[0], freeMost/2
	_, err := e.Isend(1, 1, nil).Wait(bg)
	require.NoError(t, err)
	c.step()
	require.Zero(t, e.Look().Open)
	var open []Request
	for range n {
		open = append(open, e.Isend(1, 1, nil), e.Issend(1, 2, nil), e.Irecv(0, 3, exact, nil))
		e.Isend(1, 1, nil).Free()
	}
	c.step()
	require.Equal(t, n, e.Look().Open, "others are under way")
	for range n {
		_, err := c.e[1].Recv(bg, 0, 2, exact, nil)
		require.NoError(t, err)
	}
	c.step()
	require.Equal(t, 2*n, e.Look().Open)
	for i, r := range open {
		if r.Cancel(); i%3 != 2 {
			_, done, err := r.Test()
			require.True(t, done)
			require.NoError(t, err)
		}
	}
	require.Equal(t, n, e.Look().Open)
	for _, r := range open {
		r.Free()
	}
	require.Zero(t, e.Look().Open)
}

// TestLookAges: what was there when somebody looked is at least as old.
func TestLookAges(t *testing.T) {
	c := manual(t, 2, fakeOpts{})
	e := c.e[0]
	old := e.Irecv(1, 1, exact, nil)
	first := e.Look()
	require.Zero(t, group(t, first, UnfinishedRecv, 1).Age)
	e.marks[0].at = e.marks[0].at.Add(-time.Hour)
	c.e[1].Isend(0, 9, nil)
	c.step()
	second := e.Look()
	e.marks[1].at = e.marks[1].at.Add(-time.Minute)
	young := e.Irecv(1, 2, exact, nil)
	third := e.Look()
	require.Equal(t, third.At.Sub(first.At.Add(-time.Hour)), group(t, third, UnfinishedRecv, 1).Age)
	require.Equal(t, third.At.Sub(second.At.Add(-time.Minute)), group(t, third, UnfinishedMessage, 9).Age)
	require.Zero(t, group(t, third, UnfinishedRecv, 2).Age)
	require.Zero(t, third.Still)
	fourth := e.Look()
	require.Equal(t, fourth.At.Sub(third.At), fourth.Still)
	require.Equal(t, fourth.Still, group(t, fourth, UnfinishedRecv, 2).Age)
	for _, r := range []Request{old, young} {
		r.Cancel()
		r.Free()
	}
}

// TestMovedMarks: who asks whether anything has moved lets later looks know since when it has not.
func TestMovedMarks(t *testing.T) {
	e := manual(t, 2, fakeOpts{}).e[0]
	r := e.Irecv(1, 1, exact, nil)
	moved := e.Moved()
	e.marks[len(e.marks)-1].at = e.marks[len(e.marks)-1].at.Add(-time.Hour)
	require.Equal(t, moved, e.Moved())
	look := e.Look()
	require.Equal(t, moved, look.Moved)
	require.GreaterOrEqual(t, look.Still, time.Hour)
	r.Cancel()
	r.Free()
	require.Greater(t, e.Moved(), moved)
}

// TestLookSendAges: a send is as old as what was posted, wherever it waits.
func TestLookSendAges(t *testing.T) {
	c := newCluster(t, 2, Config{Manual: true, UnexpectedLimit: 64 << 10}, fakeOpts{maxEager: 1000})
	e, buf := c.e[0], make([]byte, 2000)
	requests := []Request{e.Isend(1, 1, buf)}
	first := e.Look()
	require.Zero(t, group(t, first, UnfinishedSend, 1).Age)
	e.marks[0].at = e.marks[0].at.Add(-time.Hour)
	requests = append(requests, e.Isend(1, 2, buf))
	for range 200 { // more than the receiver has memory for
		requests = append(requests, e.Isend(1, 3, buf[:1000]))
	}
	second := e.Look()
	require.Equal(t, second.At.Sub(first.At.Add(-time.Hour)), group(t, second, UnfinishedSend, 1).Age)
	require.Equal(t, StageRequested, group(t, second, UnfinishedSend, 2).Stage)
	require.Zero(t, group(t, second, UnfinishedSend, 2).Age)
	require.Equal(t, StageHeld, group(t, second, UnfinishedSend, 3).Stage)
	require.Zero(t, group(t, second, UnfinishedSend, 3).Age)
	third := e.Look()
	for i, tag := range []uint64{1, 2, 3} {
		require.Equal(t, tag, third.Groups[i].Tag, "the oldest come first")
	}
	require.Equal(t, third.At.Sub(second.At), group(t, third, UnfinishedSend, 2).Age)
	require.Equal(t, third.At.Sub(second.At), group(t, third, UnfinishedSend, 3).Age)
	for _, r := range requests {
		r.Cancel()
		r.Free()
	}
}

// TestMarks: there are never many, the oldest stays, and none claims more than was there.
func TestMarks(t *testing.T) {
	var l marks
	at := time.Unix(0, 0)
	for n := range uint64(100_000) {
		at = at.Add(300 * time.Millisecond)
		l.add(mark{at: at, moved: n})
		require.LessOrEqual(t, len(l), mostMarks)
		require.Equal(t, mark{at: at, moved: n}, l[len(l)-1])
	}
	require.Zero(t, l[0].moved)
	for i := range l[1:] {
		require.Less(t, l[i].moved, l[i+1].moved)
		require.Equal(t, l[i+1].at, time.Unix(0, 0).Add(300*time.Millisecond*time.Duration(l[i+1].moved+1)))
		got, ok := l.since(l[i].moved+1, func(m *mark) uint64 { return m.moved })
		require.True(t, ok)
		require.Equal(t, l[i+1].at, got)
	}
	_, ok := l.since(100_000, func(m *mark) uint64 { return m.moved })
	require.False(t, ok)
}

// BenchmarkLook is a look at many receives, messages or sends. The holds of the lock are half-us in
// the median, and of a hundred one is longer than p99-us.
func BenchmarkLook(b *testing.B) {
	for _, bench := range []struct {
		kind string
		n    int
		fill func(e *Engine, i uint64, buf []byte)
	}{
		{"posted", 100_000, func(e *Engine, i uint64, buf []byte) { e.Irecv(0, i, exact, buf) }},
		{"unexpected", 1_000_000, func(e *Engine, i uint64, buf []byte) { _ = e.Send(bg, 0, i, buf); e.Poll() }},
		{"alike", 1_000_000, func(e *Engine, _ uint64, buf []byte) { _ = e.Send(bg, 0, 7, buf); e.Poll() }},
	} {
		b.Run(fmt.Sprintf("%s/%d", bench.kind, bench.n), func(b *testing.B) {
			e, buf := newLoopOf(b, 1<<30), make([]byte, 8)
			for i := range uint64(bench.n) {
				bench.fill(e, i, buf)
			}
			var holds []time.Duration
			for b.Loop() {
				newLooker(e, func(p piece) bool {
					start := time.Now()
					more := p()
					holds = append(holds, time.Since(start))
					return more
				}).all()
			}
			slices.Sort(holds)
			b.ReportMetric(holds[len(holds)/2].Seconds()*1e6, "half-us")
			b.ReportMetric(holds[len(holds)*99/100].Seconds()*1e6, "p99-us")
		})
	}
}
