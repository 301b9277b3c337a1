//go:build invariants

package progress

import (
	"bytes"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"
)

// Of a receive's buffer the message alone is to be left alone until it is reported: what is behind
// it the library has never touched.
func TestOnlyMessageIsLeftAlone(t *testing.T) {
	c := manual(t, 2, fakeOpts{})
	for _, size := range []int{0, 5, 1000} { // eager and rendezvous
		buf := make([]byte, 2000)
		r := c.e[1].Irecv(0, 4, exact, buf)
		s := c.e[0].Isend(1, 4, fill(size, 1))
		c.step()
		buf[size]++
		succeeded(t, r, s)

		r = c.e[1].Irecv(0, 4, exact, buf)
		s = c.e[0].Isend(1, 4, fill(size+1, 1))
		c.step()
		buf[size]++
		broken(t, "buffer", func() { _, _ = r.Wait(bg) })
		succeeded(t, s)
	}
	buf := make([]byte, 8)
	canceled := c.e[1].Irecv(0, 5, exact, buf)
	canceled.Cancel()
	buf[0]++
	_, err := canceled.Wait(bg)
	require.ErrorIs(t, err, ErrCanceled)
}

// The buffers of requests that a queue reports are the library's until then.
func TestBuffersOfQueue(t *testing.T) {
	c := manual(t, 2, fakeOpts{})
	q, buf, out := c.e[1].NewQueue(0), make([]byte, 8), make([]Completion, 1)
	c.e[1].Irecv(0, 4, exact, buf).Notify(q, data(1))
	succeeded(t, c.e[0].Isend(1, 4, fill(8, 1)))
	c.step()
	buf[0]++
	require.Contains(t, broken(t, "buffer", func() { q.Poll(out) }), here)
	sent := fill(8, 1)
	c.e[1].Isend(0, 4, sent).Notify(q, data(2))
	sent[3]++
	broken(t, "buffer", func() { _, _ = q.Wait(bg, out) })
	require.Equal(t, fill(8, 1), c.take(1, 0, 4))
}

// What was given away is told apart in a dump, and only what somebody may still be told is told of
// at the end.
func TestGivenRequestsAreTold(t *testing.T) {
	var log bytes.Buffer
	c := newCluster(t, 2, Config{Manual: true, Logger: slog.New(slog.NewTextHandler(&log, nil))}, fakeOpts{})
	q := c.e[0].NewQueue(0)
	c.e[0].Irecv(1, 1, exact, nil).Notify(q, data(1))
	c.e[0].Irecv(1, 2, exact, nil).Free()
	c.e[0].Isend(1, 3, nil).Notify(q, data(2))
	var dump bytes.Buffer
	require.NoError(t, c.e[0].Dump(&dump))
	for _, state := range []string{"under way, given to a Queue: receive", "under way, given up by Free: receive",
		"ended, not reported by its Queue yet: send"} {
		require.Contains(t, dump.String(), state)
	}
	require.NoError(t, c.e[0].Close(nil))
	require.Equal(t, 2, bytes.Count(log.Bytes(), []byte("requests that were posted here were never completed")), log.String())
	require.NotContains(t, log.String(), "tag 0x2")
	c.take(0, 1, 3)
}

// Each check of queues is seen to fail when its rule is broken.
func TestQueuesAreChecked(t *testing.T) {
	for text, spoil := range map[string]func(e *Engine, q *Queue, pending *entry){
		"without a waiter":            func(e *Engine, q *Queue, _ *entry) { q.calls = callList{} },
		"that was woken":              func(e *Engine, q *Queue, _ *entry) { q.calls.head.SetEnded() },
		"or is closed":                func(_ *Engine, q *Queue, _ *entry) { q.closed = true },
		"sleep at a queue":            func(e *Engine, q *Queue, _ *entry) { q.ready.push(e.queues.entry(q, data(1))) },
		"1 outcomes, 0 are counted":   func(e *Engine, q *Queue, _ *entry) { q.woken = true; q.ready.push(e.queues.entry(q, data(1))) },
		"will not be told the end of": func(_ *Engine, _ *Queue, pending *entry) { pending.watch.Unlink() },
	} {
		t.Run(text, func(t *testing.T) {
			e := doomed(t, 1, fakeOpts{}).e[0]
			q := e.NewQueue(0)
			e.Irecv(0, 1, exact, nil).Notify(q, data(1))
			e.mu.Lock()
			q.enter(e.queues.call())
			listCheck{e}.queues()
			spoil(e, q, q.pending.head)
			e.mu.Unlock()
			require.Contains(t, brokenIn(t, e, "queue", listCheck{e}.queues), text)
		})
	}
}
