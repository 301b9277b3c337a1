package p2p_test

import (
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/p2p"
	"github.com/tagmatch/tagmatch/p2p/p2ptest"
)

// A loop of calls that do not wait, and find nothing, lets other goroutines run. Without that the
// only processor would be the loop's for 10 ms, and these calls take microseconds.
func TestVainCallsYield(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	p2ptest.RunConfig(t, 1, p2p.Config{Progress: p2p.ProgressManual}, func(w *p2p.World) {
		c, q, out := w.Comm(), w.NewQueue(1), make([]p2p.Completion, 1)
		w.Irecv(1, p2p.MaskExact, nil).Notify(q, 0)
		reqs := []p2p.Request{w.Irecv(2, p2p.MaskExact, nil)}
		for name, call := range map[string]func(){
			"Test":          func() { _, _, _ = reqs[0].Test() },
			"Peek":          func() { _, _, _ = reqs[0].Peek() },
			"TestAll":       func() { _, _ = p2p.TestAll(reqs, nil) },
			"TestAny":       func() { _, _, _, _ = p2p.TestAny(reqs) },
			"TestSome":      func() { _, _ = p2p.TestSome(reqs, out) },
			"Queue.Poll":    func() { q.Poll(out) },
			"World.Iprobe":  func() { _, _, _ = w.Iprobe(3, p2p.MaskExact) },
			"World.Improbe": func() { _, _, _ = w.Improbe(3, p2p.MaskExact) },
			"Comm.Iprobe":   func() { _, _, _ = c.Iprobe(p2p.AnySource, 3) },
			"Comm.Improbe":  func() { _, _, _ = c.Improbe(p2p.AnySource, 3) },
		} {
			var ran atomic.Bool
			go ran.Store(true)
			calls := 0
			for ; calls < 100 && !ran.Load(); calls++ {
				call()
			}
			require.True(t, ran.Load(), "%s does not yield", name)
		}
		q.Cancel()
		reqs[0].Cancel()
		_, err := reqs[0].Wait(background)
		require.ErrorIs(t, err, p2p.ErrCanceled)
		require.Equal(t, 1, q.Poll(out))
	})
}
