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
		s := &Session{Flags: Flags{For: pause}, World: w, Peer: 1 - w.Rank(), First: w.Rank() == 0, report: &reporter{out: &out}}
		r, err := Idle(s, 8, 3)
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
	require.Regexp(t, `waits for 0.02 s; .*\n +size .*\n +8 +3 `, out.String())
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
	go func() { done <- p.await(0, 7) }()
	require.NoError(t, peer.wake(7))
	require.NoError(t, <-done)
	require.NoError(t, p.await(0, 7), "it has the value")
	peer.stamp.Store(5)
	require.Equal(t, int64(5), p.stamp.Load())
	require.NoError(t, peer.close())
	require.NoError(t, p.close())
	_, err = openPage("/proc/self/nothing")
	require.ErrorContains(t, err, "/proc/self/nothing")
}
