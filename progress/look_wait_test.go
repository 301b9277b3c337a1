package progress

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// sleeping is how many goroutines a look has found asleep: in calls, in Flush, and with a deadline.
func sleeping(e *Engine) [3]int {
	l := e.Look()
	return [3]int{l.Waiting, l.Flushing, l.Timed}
}

// TestLookSleeping: goroutines that sleep are counted by what they sleep for, in both ways of
// making progress.
func TestLookSleeping(t *testing.T) {
	for _, manual := range []bool{false, true} {
		c := newCluster(t, 2, Config{Manual: manual, SpinLimit: -1}, fakeOpts{})
		e := c.e[0]
		ctx, cancel := context.WithCancel(bg)
		timed, stop := context.WithTimeout(ctx, time.Hour)
		defer stop()
		ended := make(chan struct{}, 4)
		wait := func(f func(), want [3]int) {
			t.Helper()
			go func() {
				f()
				ended <- struct{}{}
			}()
			require.Eventually(t, func() bool { return sleeping(e) == want }, time.Minute, time.Millisecond)
		}
		big := e.Isend(1, 1, make([]byte, 1<<20)) // nobody receives it
		wait(func() { _, _ = e.Recv(ctx, 1, 1, exact, nil) }, [3]int{1, 0, 0})
		wait(func() { _, _ = e.Recv(timed, 1, 2, exact, nil) }, [3]int{2, 0, 1})
		wait(func() { _ = e.Flush(ctx) }, [3]int{2, 1, 1})
		wait(func() { _, _ = e.Recv(Aside{timed}, 1, 3, exact, nil) }, [3]int{2, 1, 1})
		cancel()
		for range 4 {
			<-ended
		}
		require.Eventually(t, func() bool { return sleeping(e) == [3]int{} }, time.Minute, time.Millisecond)
		big.Cancel()
		big.Free()
	}
}

// TestLookManyWaiters: as many goroutines as one likes are counted, in pieces.
func TestLookManyWaiters(t *testing.T) {
	c := newCluster(t, 1, Config{}, fakeOpts{})
	e, n := c.e[0], 3*pieceMost+1
	ctx, cancel := context.WithCancel(bg)
	ended := make(chan struct{}, n)
	for i := range n {
		go func() {
			_, _ = e.Recv(ctx, 0, uint64(i), exact, nil)
			ended <- struct{}{}
		}()
	}
	require.Eventually(t, func() bool { return sleeping(e) == [3]int{n, 0, 0} }, time.Minute, 10*time.Millisecond)
	require.True(t, e.Look().Partial)
	cancel()
	for range n {
		<-ended
	}
}

// TestLookBegins: what is posted, or comes, after the first piece of a look is not in it.
func TestLookBegins(t *testing.T) {
	e := manual(t, 1, fakeOpts{}).e[0]
	e.Isend(0, 1, nil).Free()
	e.Poll()
	begun := false
	l := newLooker(e, func(p piece) bool {
		more := p()
		if !begun {
			begun = true
			require.NoError(t, e.tr.SendEager(0, 0, 2, nil))
			require.Equal(t, 1, e.pollLocked())
			e.newOpLocked(noteRecv, 0, 3, exact, nil).receive()
		}
		return more
	}).all()
	require.Len(t, l.Groups, 1)
	require.EqualValues(t, 1, l.Groups[0].Tag)
}

// evens is the ranks that are even.
type evens struct{}

func (evens) Contains(rank int) bool { return rank%2 == 0 }

// TestLookFrom: a receive from any of a Group says so, and which of its ranks are lost.
func TestLookFrom(t *testing.T) {
	c := manual(t, 3, fakeOpts{})
	e := c.e[0]
	g := e.Group(1<<63, evens{})
	e.Irecv(g, 1<<63|1, exact, nil).Free()
	e.Irecv(AnySource, 2, exact, nil).Free()
	l := e.Look()
	require.Equal(t, evens{}, group(t, l, UnfinishedRecv, 1<<63|1).From)
	require.Nil(t, group(t, l, UnfinishedRecv, 2).From)
	require.False(t, l.Partial)
	c.net.kill(1)
	c.net.kill(2)
	c.step()
	e.AckFailures(AnySource, 1)
	require.Equal(t, []Unacked{{Ranks: []int{2}}, {Context: 1 << 63, Ranks: []int{2}}}, e.Look().Unacked)
}
