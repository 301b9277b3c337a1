package progress

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestTraffic counts the bytes of messages: eager ones that were expected, unexpected, chained,
// gathered, cut and dropped, and rendezvous that were read.
func TestTraffic(t *testing.T) {
	c := newCluster(t, 3, Config{Manual: true, EagerLimit: 1 << 10}, fakeOpts{})
	c.connectAll()
	a, b := c.e[0], c.e[1]
	r := b.Irecv(0, 1, exact, make([]byte, 100))
	require.NoError(t, a.Send(bg, 1, 1, make([]byte, 100)))
	c.step()
	_, err := r.Wait(bg)
	require.NoError(t, err)
	require.NoError(t, a.Send(bg, 1, 2, make([]byte, 200)))
	c.step()
	_, err = b.Recv(bg, 0, 2, exact, make([]byte, 10))
	require.ErrorIs(t, err, ErrTruncated)
	require.NoError(t, a.Send(bg, 1, 3, make([]byte, 30)))
	c.step()
	m, ok, err := b.Improbe(0, 3, exact)
	require.NoError(t, err)
	require.True(t, ok)
	m.Discard()
	a.IsendVec(1, 4, [][]byte{make([]byte, 3), make([]byte, 4)}).Free()
	c.step()
	_, err = b.Recv(bg, 0, 4, exact, make([]byte, 10))
	require.NoError(t, err)
	require.Equal(t, []Traffic{{Rank: 1, EagerSent: 337}}, a.Traffic())
	require.Equal(t, []Traffic{{Rank: 0, EagerReceived: 337}}, b.Traffic())

	s := a.Isend(1, 5, make([]byte, 5000))
	c.step()
	require.Equal(t, []Traffic{{Rank: 1, EagerSent: 337}}, a.Traffic(), "nobody has received it")
	_, err = b.Recv(bg, 0, 5, exact, make([]byte, 5000))
	require.NoError(t, err)
	c.step()
	_, err = s.Wait(bg)
	require.NoError(t, err)
	require.NoError(t, b.Send(bg, 1, 6, make([]byte, 6)))
	_, err = b.Recv(bg, 1, 6, exact, make([]byte, 6))
	require.NoError(t, err)
	require.Equal(t, []Traffic{{Rank: 1, EagerSent: 337, RndvSent: 5000}}, a.Traffic())
	require.Equal(t, []Traffic{{Rank: 0, EagerReceived: 337, RndvReceived: 5000}, {Rank: 1, EagerSent: 6, EagerReceived: 6}}, b.Traffic())
	n := b.Metrics()
	require.Equal(t, []uint64{6, 343, 0, 5000}, []uint64{n.EagerSentBytes, n.EagerReceivedBytes, n.RndvSentBytes, n.RndvReceivedBytes})
	require.Empty(t, c.e[2].Traffic())
	succeeded(t, c.isendAll(0, 3, always(2), always(10))...)
	require.Equal(t, Traffic{Rank: 2, EagerSent: 30}, a.Traffic()[1])
}

// TestOperationsNow counts operations under way, and requests that have ended and were not
// reported.
func TestOperationsNow(t *testing.T) {
	c := newCluster(t, 2, Config{Manual: true}, fakeOpts{})
	e := c.e[0]
	counts := func() [2]int { m := e.Metrics(); return [2]int{m.OperationsNow, m.UnreportedNow} }
	require.Equal(t, [2]int{}, counts())
	r := e.Irecv(1, 1, exact, nil)
	require.Equal(t, [2]int{1, 0}, counts())
	s := e.Isend(1, 2, nil)
	require.Equal(t, [2]int{2, 1}, counts())
	r.Cancel()
	c.step()
	require.Equal(t, [2]int{2, 2}, counts())
	_, err := r.Wait(bg)
	require.ErrorIs(t, err, ErrCanceled)
	q := e.NewQueue(1)
	s.Notify(q, Label{})
	require.Equal(t, [2]int{1, 1}, counts(), "the queue has not reported it")
	require.Equal(t, 1, q.Poll(make([]Completion, 2)))
	require.Equal(t, [2]int{}, counts())
}

// TestOldestWait: waits count while they go on, and afterwards.
func TestOldestWait(t *testing.T) {
	c := newCluster(t, 2, Config{SpinLimit: -1}, fakeOpts{})
	e := c.e[0]
	require.Zero(t, e.Metrics().OldestWait)
	got := make(chan error)
	for tag := range uint64(2) {
		go func() {
			_, err := e.Recv(bg, 1, tag, exact, nil)
			got <- err
		}()
	}
	require.Eventually(t, func() bool { return e.Look().Waiting == 2 }, time.Minute, time.Millisecond)
	require.Eventually(t, func() bool { return e.Metrics().OldestWait > time.Millisecond }, time.Minute, time.Millisecond)
	require.Positive(t, e.Metrics().Waited, "both still wait")
	for tag := range uint64(2) {
		require.NoError(t, c.e[1].Send(bg, 0, tag, nil))
		require.NoError(t, <-got)
	}
	m := e.Metrics()
	require.Zero(t, m.OldestWait)
	require.Positive(t, m.Waited)
	require.Equal(t, m.Waited, e.Metrics().Waited, "nobody waits any more")
}
