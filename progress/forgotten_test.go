package progress

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestForgotten: of requests that have ended and were not completed there is one warning, with
// their number.
func TestForgotten(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(c *cluster, e *Engine)
		want string
	}{
		{"none", func(c *cluster, e *Engine) {
			_, _ = e.Isend(1, 1, nil).Wait(bg)
			e.Isend(1, 1, nil).Free()
			e.Irecv(1, 3, exact, nil) // may be waited for after Close
			_, _ = e.Null().Wait(bg)
		}, ""},
		{"some", func(c *cluster, e *Engine) {
			for range 3 {
				e.Isend(1, 7, make([]byte, 8))
			}
			s, r, q := e.Issend(1, 9, make([]byte, 5)), e.Irecv(1, 3, exact, nil), e.NewQueue(1)
			e.Isend(1, 8, nil).Notify(q, Label{})
			e.Irecv(1, 4, exact, nil)
			require.NoError(c.t, c.e[1].Send(bg, 0, 4, nil))
			e.Null()
			r.Cancel()
			c.step()
			_, err := c.e[1].Recv(bg, 0, 9, exact, make([]byte, 5))
			require.NoError(c.t, err)
			c.step()
			require.True(c.t, s.Over() && r.Over())
		}, `requests=8 which="send, tag 0x7, 8 bytes (3 times); call without a peer; recv from 1, tag 0x3, failed; recv from 1, tag 0x4, 0 bytes; ` +
			`send to 1, tag 0x9, 5 bytes; send, tag 0x8, 0 bytes"`},
		{"many", func(c *cluster, e *Engine) {
			for i := range firstMost + 10 {
				if e.Isend(1, uint64(i%10), nil); i%100 == 0 {
					c.step()
				}
			}
			e.Irecv(1, 3, exact, nil)
		}, fmt.Sprintf("requests=%d ", firstMost+10)},
	} {
		t.Run(c.name, func(t *testing.T) {
			var log bytes.Buffer
			cl := newCluster(t, 2, Config{Manual: true, UnexpectedLimit: 1 << 30, Logger: slog.New(slog.NewTextHandler(&log, nil))}, fakeOpts{})
			c.do(cl, cl.e[0])
			require.NoError(t, cl.e[0].Close(nil))
			const text = "requests have ended and were never completed"
			require.Equal(t, min(len(c.want), 1), strings.Count(log.String(), text), log.String())
			require.Contains(t, log.String(), c.want)
		})
	}
}

// TestForgottenIsNoCall: a call that has its message, and has not run since, forgets nothing.
func TestForgottenIsNoCall(t *testing.T) {
	var log bytes.Buffer
	c := newCluster(t, 2, Config{Manual: true, Logger: slog.New(slog.NewTextHandler(&log, nil))}, fakeOpts{})
	c.connectAll()
	e, ended := c.e[0], make(chan error)
	go func() {
		_, err := e.Recv(bg, 1, 1, exact, nil)
		ended <- err
	}()
	require.Eventually(t, func() bool { return e.Look().Waiting == 1 }, time.Minute, time.Millisecond)
	e.mu.Lock()
	require.NoError(t, c.e[1].Send(bg, 0, 1, nil))
	e.pollLocked()
	received := e.m.EagerReceived
	e.pools.warnForgotten(e.log, 0, e.entered.underWay())
	e.mu.Unlock()
	require.EqualValues(t, 1, received)
	require.NoError(t, <-ended)
	require.Empty(t, log.String())
}

func TestForgottenList(t *testing.T) {
	counts := map[string]int{"j": 2}
	for _, s := range "abcdefghi" {
		counts[string(s)] = 1
	}
	require.Equal(t, "j (2 times); a; b; c; d; e; f; g; and 7 more", forgottenList(counts, 5))
}
