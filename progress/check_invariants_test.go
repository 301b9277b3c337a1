//go:build invariants

package progress

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/invariant/invarianttest"
	"github.com/tagmatch/tagmatch/transport"
)

// Each check is seen to fail when the engine, or the program, breaks its rule.

// doomed is a cluster that is left as it is: what is broken in it cannot be closed.
func doomed(t *testing.T, n int, opts fakeOpts) *cluster {
	c := newCluster(t, n, Config{Manual: true}, opts)
	t.Cleanup(func() { // before newCluster's
		for _, e := range c.e {
			e.closeOnce.Do(func() {})
		}
	})
	return c
}

// broken requires that f breaks a rule, and gives the text.
func broken(t *testing.T, rule string, f func()) string {
	t.Helper()
	return invarianttest.Violates(t, rule, f)
}

// brokenIn is broken with the engine's lock held.
func brokenIn(t *testing.T, e *Engine, rule string, f func()) string {
	t.Helper()
	e.mu.Lock()
	defer e.mu.Unlock()
	return broken(t, rule, f)
}

func newOp(e *Engine) *Op { return e.newOpLocked(noteRecv, 0, 1, exact, nil) }

const here = "progress.Test" // in the stack of a post by a test

func TestOwnerIsChecked(t *testing.T) {
	c := doomed(t, 2, fakeOpts{})
	e := c.e[0]
	r := e.Irecv(1, 1, exact, nil)
	for _, f := range []func(){
		func() { r.op.complete(Status{}, nil) },
		func() { r.op.cancel() },
		func() { newOp(e) },
		func() { r.op.post() },
		func() { e.pollLocked() },
		func() { e.peers[1].lose(nil) },
		func() { e.peers[1].markDirty() },
		func() { (*sink)(e).Eager(1, 1, 1, nil) },
	} {
		broken(t, "owner", f)
	}
	brokenIn(t, e, "owner", func() { (*sink)(e).Fin(1, 1) }) // the lock is held, but nobody polls
	c.callback(0, func(transport.Sink) { broken(t, "owner", func() { e.pollLocked() }) })
}

func TestCompletionTwice(t *testing.T) {
	c := doomed(t, 2, fakeOpts{})
	e := c.e[0]
	r := e.Isend(1, 7, fill(8, 1))
	text := brokenIn(t, e, "state", func() { r.op.complete(Status{}, ErrClosed) })
	require.Contains(t, text, "send of 8 bytes to 1, tag 0x7")
	require.Contains(t, text, here)
	op := r.op
	succeeded(t, r)
	brokenIn(t, e, "state", func() { op.vanish() })
	brokenIn(t, e, "pool", func() { op.free() })
}

func TestCompletionWhileLinked(t *testing.T) {
	c := doomed(t, 2, fakeOpts{tags: 4, room: 1})
	e := c.e[0]
	end := func(rule string, r Request) {
		t.Helper()
		brokenIn(t, e, rule, func() { r.op.complete(Status{}, nil) })
	}
	end("slot", e.Irecv(1, 1, exact, nil)) // in the device
	e.off.least = 1                        // what is shorter stays in software
	kept := e.Irecv(1, 2, exact, nil)
	e.Irecv(1, 2, exact, make([]byte, 1)) // looks for earlier ones that overlap it
	end("V5", kept)
	kept.op.linked = true
	end("list", kept)
	kept.op.linked = false
	s := e.Issend(1, 1, fill(8, 1))
	require.Equal(t, opRequested, s.op.state)
	end("V16", s)
	end("list", e.Isend(1, 1, fill(8, 1)))
	s.op.region = nil
	end("slot", s)
	e.posted.Remove(kept.op.handle)
	end("V5", kept)
}

func TestSlotTwice(t *testing.T) {
	c := doomed(t, 2, fakeOpts{})
	e := c.e[0]
	s := e.Issend(1, 9, fill(8, 1))
	e.sends.release(s.op.slot)
	text := broken(t, "slot", func() { e.sends.release(s.op.slot) })
	require.Contains(t, text, "send of 8 bytes to 1, tag 0x9")
	require.Contains(t, text, here)
	broken(t, "slot", func() { e.sends.replace(s.op.slot, nil) })
	broken(t, "slot", func() { e.sends.release(slot{index: 1000}) })
}

func TestPoolIsChecked(t *testing.T) {
	c := doomed(t, 2, fakeOpts{})
	e := c.e[0]
	for _, touch := range []struct {
		rule string
		do   func(op *Op)
	}{
		{"poison", func(op *Op) { op.tag = 1 }},
		{"poison", func(op *Op) { op.peer = 1 }},
		{"poison", func(op *Op) { op.handle = 1 }},
		{"poison", func(op *Op) { op.slot = slot{} }},
		{"V16", func(op *Op) { op.region = new(fakeRegion) }},
		{"pool", func(op *Op) { op.buf = make([]byte, 1) }},
		{"pool", func(op *Op) { op.err = ErrClosed }},
	} {
		succeeded(t, e.Isend(1, 1, nil))
		touch.do(e.pools.sent.returned.Load())
		brokenIn(t, e, touch.rule, func() { e.sentLocked(1, 1, nil) })
		e.pools.sent.free = nil
	}
	r := e.Irecv(1, 1, exact, nil)
	e.mu.Lock()
	e.posted.Remove(r.op.handle)
	r.op.complete(Status{}, nil)
	e.mu.Unlock()
	r.op.linked = true
	broken(t, "list", func() { _, _ = r.Wait(bg) })
}

func TestConsumedRequestNamesItsPost(t *testing.T) {
	c := manual(t, 2, fakeOpts{})
	r := c.e[0].Isend(1, 0x55, fill(8, 1))
	_, err := r.Wait(bg)
	require.NoError(t, err)
	again := c.e[0].Isend(1, 1, nil) // takes the same Op
	require.Same(t, r.op, again.op)
	for range 2 {
		_, err = r.Wait(bg)
		require.ErrorIs(t, err, ErrInactive)
		require.Contains(t, err.Error(), "send of 8 bytes to 1, tag 0x55, posted at\n")
		require.Equal(t, 2, strings.Count(err.Error(), here), "%v", err)
		_, _, err = r.Test()
		require.ErrorIs(t, err, ErrInactive)
	}
	_, err = again.Wait(bg)
	require.NoError(t, err)
	_, err = Failed(ErrFull).Wait(bg)
	require.Equal(t, ErrFull, err)
}

func TestBuffersAreLeftAlone(t *testing.T) {
	for name, change := range map[string]func(c *cluster, buf []byte, restore byte){
		"under way":         func(c *cluster, buf []byte, _ byte) { buf[5]++; c.step() },
		"ended":             func(c *cluster, buf []byte, _ byte) { c.step(); buf[5]++ },
		"restored too late": func(c *cluster, buf []byte, old byte) { buf[5]++; c.step(); buf[5] = old },
	} {
		t.Run(name, func(t *testing.T) {
			for _, size := range []int{8, 1000} {
				c := manual(t, 2, fakeOpts{})
				r := c.e[1].Irecv(0, 4, exact, make([]byte, 1000))
				buf := fill(size, 1)
				s := c.e[0].Isend(1, 4, buf)
				if size == 8 && name == "restored too late" {
					buf[5]++ // it has ended already: this restores nothing
				}
				change(c, buf, buf[5])
				text := broken(t, "buffer", func() { _, _ = s.Wait(bg) })
				require.Contains(t, text, here)
				succeeded(t, r)
			}
		})
	}
	c := manual(t, 2, fakeOpts{})
	buf := make([]byte, 8)
	r := c.e[1].Irecv(0, 4, exact, buf)
	require.NoError(t, c.e[0].Send(bg, 1, 4, fill(8, 1)))
	c.step()
	buf[0]++
	broken(t, "buffer", func() { _, _ = r.Wait(bg) })
	// A send that fails makes no promise of its bytes.
	buf = fill(1000, 1)
	s := c.e[0].Isend(1, 4, buf)
	buf[0]++
	s.Cancel()
	c.step()
	canceled(t, s)
}

func TestBlockingSendBuffer(t *testing.T) {
	c := newCluster(t, 2, Config{}, fakeOpts{})
	buf := fill(1000, 1)
	said := make(chan string)
	go func() {
		defer close(said)
		said <- broken(t, "buffer", func() { _ = c.e[0].Send(bg, 1, 3, buf) })
	}()
	for c.e[0].Metrics().RequestsNow == 0 {
	}
	c.e[0].mu.Lock()
	buf[0]++
	c.e[0].mu.Unlock()
	_, err := c.e[1].Recv(bg, 0, 3, exact, make([]byte, 1000))
	require.NoError(t, err)
	require.Contains(t, <-said, here)
}

func TestOpenRequestsAreTold(t *testing.T) {
	var log, dump bytes.Buffer
	c := newCluster(t, 2, Config{Manual: true, Logger: slog.New(slog.NewTextHandler(&log, nil))}, fakeOpts{})
	e := c.e[0]
	open := e.Irecv(1, 0x77, exact, nil)
	e.Isend(0, 0x78, nil)
	_, err := e.Isend(1, 0x79, nil).Wait(bg)
	require.NoError(t, err)
	c.step()
	require.NoError(t, e.Dump(&dump))
	require.Contains(t, dump.String(), "operations: 2\n  under way: receive of up to 0 bytes from 1, tag 0x77, posted at\n")
	require.Contains(t, dump.String(), "  ended, not completed by Wait or Test: send of 0 bytes to 0, tag 0x78, posted at\n")
	require.NotContains(t, dump.String(), "0x79")
	require.Contains(t, dump.String(), here)
	require.NoError(t, e.Close(nil))
	for _, tag := range []string{"0x77", "0x78"} {
		require.Contains(t, log.String(), "tag "+tag)
	}
	require.Equal(t, 2, strings.Count(log.String(), "requests that were posted here were never completed"))
	require.Regexp(t, `posted="check_invariants_test.go:\d+ progress.TestOpenRequestsAreTold" requests=1 first="receive of up to 0 bytes from 1, tag 0x77"`, log.String())
	require.Equal(t, 1, strings.Count(log.String(), "messages were never received"))
	_, err = open.Wait(bg)
	require.Equal(t, ErrClosed, err)
}
