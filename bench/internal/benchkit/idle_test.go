package benchkit

import (
	"bytes"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/p2p"
	"github.com/tagmatch/tagmatch/p2p/p2ptest"
)

func TestIdle(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("wake-ups are measured beside Linux's futex")
	}
	var out bytes.Buffer
	p2ptest.Run(t, 2, func(w *p2p.World) {
		s := &Session{World: w, Peer: 1 - w.Rank(), First: w.Rank() == 0, report: &reporter{Table: Table{Out: &out}}}
		r, err := (&Idle{For: pause}).measure(s, 8, 3)
		require.NoError(t, err)
		if !s.First {
			return
		}
		require.Equal(t, [3]any{"idle", 8, 3}, [3]any{r.Test, r.Size, r.Iters})
		for _, us := range []float64{r.AvgUs, r.WakeUs, r.FutexUs} {
			require.Positive(t, us)
		}
		require.InDelta(t, r.WakeUs/r.FutexUs, r.OverFutex, 1e-9)
		require.Positive(t, r.CPUPct)
		require.NoError(t, s.report.print(&r))
	})
	require.Regexp(t, `#.*\n.* futex p99 .*\n.* 8 +3 `, out.String())
}

// TestIdleHeldUp: a first rank that is held up finds nothing of what is to wake it.
func TestIdleHeldUp(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("wake-ups are measured beside Linux's futex")
	}
	const anyTag = 0
	p2ptest.Run(t, 2, func(w *p2p.World) {
		s := &Session{World: w, Peer: 1 - w.Rank(), First: w.Rank() == 0}
		p, err := s.page()
		require.NoError(t, err)
		i := waiter{s: s, page: p, buf: make([]byte, 8), messages: NewHistogram(), futexes: NewHistogram()}
		heldUp := func() {
			if s.First { // until the other rank has sent what it can
				st, err := w.Probe(t.Context(), 0, anyTag)
				require.NoError(t, err)
				require.Equal(t, tagSync, st.Tag)
				require.Zero(t, p.word.Load())
			}
		}
		heldUp()
		require.NoError(t, i.message(0))
		heldUp()
		require.NoError(t, i.futex(0))
		require.Equal(t, uint32(1), p.word.Load())
		require.NoError(t, s.sync())
		require.NoError(t, p.close())
	})
}

func TestStampsOfOtherClocks(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("wake-ups are measured beside Linux's futex")
	}
	at, err := now()
	require.NoError(t, err)
	h := NewHistogram()
	require.NoError(t, took(h, int64(at)))
	require.Equal(t, int64(1), h.TotalCount())
	require.ErrorContains(t, took(h, int64(at-time.Hour)), "it was sent at ")
}

func TestPage(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("wake-ups are measured beside Linux's futex")
	}
	p, name, err := newPage()
	require.NoError(t, err)
	peer, err := openPage(name)
	require.NoError(t, err)
	done := make(chan error)
	go func() { done <- p.await(0) }()
	require.NoError(t, peer.wake(7))
	require.NoError(t, <-done)
	require.NoError(t, p.await(0), "it has moved on")
	peer.stamp.Store(5)
	require.Equal(t, int64(5), p.stamp.Load())
	require.NoError(t, peer.close())
	require.NoError(t, p.close())
	_, err = openPage("/proc/self/nothing")
	require.ErrorContains(t, err, "/proc/self/nothing")
}
