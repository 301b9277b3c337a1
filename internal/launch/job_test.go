package launch

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/testlevel"
)

// TestHoldersShareALook: of ranks that end while the processes of the host are looked at all but
// one find that another's look was for them.
func TestHoldersShareALook(t *testing.T) {
	const n = 50
	var looks []int // sockets of each
	began, goOn := make(chan struct{}, n), make(chan struct{})
	h := holders{look: func(sockets map[string]bool) {
		looks = append(looks, len(sockets))
		began <- struct{}{}
		<-goOn
	}}
	var ranks sync.WaitGroup
	ranks.Go(func() { h.kill("0") })
	<-began
	for r := 1; r < n; r++ {
		ranks.Go(func() { h.kill(fmt.Sprint(r)) })
	}
	require.Eventually(t, func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return len(h.wanted) == n-1
	}, testlevel.Patience(30*time.Second), time.Millisecond)
	close(goOn)
	ranks.Wait()
	require.Equal(t, []int{1, n - 1}, looks)
}

// TestDumpsAreWhole: behind SIGQUIT the ranks that still write their stacks are not ended because
// another one has, before the grace period or the job's context is over.
func TestDumpsAreWhole(t *testing.T) {
	const grace = 5 * time.Second
	for _, tt := range []struct {
		name string
		quit bool
		late time.Duration // between SIGQUIT and the end of the first rank
		over bool          // the job's context, then
		want time.Duration
	}{
		{"no signal", false, 0, false, settleTime},
		{"at once", true, 0, false, grace},
		{"later", true, 2 * time.Second, false, grace - 2*time.Second},
		{"cancelled", true, 0, true, 0},
		{"long ago", true, time.Hour, false, settleTime},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var out bytes.Buffer
				s := newSupervisor(&job{opt: &Options{Stderr: &out, Grace: grace}})
				defer s.stopTimers()
				passed := make(chan struct{})
				close(passed)
				for n := range 2 {
					s.ranks = append(s.ranks, &rank{n: n, running: true, reaped: true, passed: passed})
				}
				s.left = 2
				if tt.quit {
					s.signalled(syscall.SIGQUIT)
				}
				time.Sleep(tt.late)
				begin := time.Now()
				s.happened(event{rank: 0, kind: rankGone, code: 2, reason: "exited with code 2"})
				if tt.over {
					s.cancelled(context.Canceled)
				} else {
					<-s.settle.C
					s.settled()
				}
				require.True(t, s.ending)
				require.Equal(t, tt.want, time.Since(begin))
			})
		})
	}
}
