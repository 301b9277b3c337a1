//go:build invariants

package p2p_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/buffertest"
	"github.com/tagmatch/tagmatch/internal/invariant"
	"github.com/tagmatch/tagmatch/p2p"
	"github.com/tagmatch/tagmatch/p2p/p2ptest"
)

// What the invariants build reports to a program that misuses p2p.

const here = "p2p_test.Test" // in the stack of a post by a test

func TestMisuseOfBuffers(t *testing.T) {
	p2ptest.Run(t, 2, func(w *p2p.World) {
		c, other := w.Comm(), 1-w.Rank()
		in, out := make([]byte, 100_000), make([]byte, 100_000)
		for range 2 { // a changed send buffer, and a changed receive buffer, are reported
			r, s := c.Irecv(other, 1, in), c.Isend(other, 1, out)
			if w.Rank() == 0 {
				<-r.Done()
				<-s.Done()
				out[7]++
				in[9]++
				for _, req := range []p2p.Request{s, r} {
					v := violation(func() { _, _ = req.Wait(background) })
					if assert.NotNil(t, v) {
						assert.Equal(t, "buffer", v.Rule)
						assert.Contains(t, v.Text, here)
					}
				}
				continue
			}
			assert.NoError(t, p2p.WaitAll(background, []p2p.Request{r, s}, nil))
		}
	})
}

// A Region that is closed before its requests were reported complete is unmapped then.
func TestMisuseOfRegions(t *testing.T) {
	p2ptest.Run(t, 1, func(w *p2p.World) {
		c := w.Comm()
		region, err := w.Alloc(1 << 16)
		require.NoError(t, err)
		buf := region.Bytes()
		reqs := []p2p.Request{c.Irecv(0, 1, buf[:8]), c.Isend(0, 1, buf[8:16]), c.Irecv(0, 2, buf)}
		reqs[2].Cancel() // the content after an error is nobody's business
		for _, r := range reqs {
			<-r.Done()
		}
		require.NoError(t, region.Close())
		for _, r := range reqs[:2] {
			v := violation(func() { _, _ = r.Wait(background) })
			if assert.NotNil(t, v) {
				assert.Equal(t, "buffer", v.Rule)
				assert.Contains(t, v.Text, "Region.Close")
				assert.Contains(t, v.Text, here)
			}
		}
		_, err = reqs[2].Wait(background)
		require.ErrorIs(t, err, p2p.ErrCanceled)
	})
}

func violation(f func()) (v *invariant.Violation) {
	defer func() { v, _ = recover().(*invariant.Violation) }()
	f()
	return nil
}

func TestMisuseOfRequests(t *testing.T) {
	p2ptest.Run(t, 1, func(w *p2p.World) {
		r := w.Isend(0, 3, []byte("x"))
		_, err := r.Wait(background)
		assert.NoError(t, err)
		_, err = r.Wait(background)
		assert.ErrorIs(t, err, p2p.ErrInactive)
		var op *p2p.OpError
		assert.True(t, errors.As(err, &op))
		assert.Equal(t, 2, strings.Count(err.Error(), here), "%v", err)
		assert.NoError(t, p2p.WaitAll(background, []p2p.Request{r}, nil))
		_, err = w.Recv(background, 3, p2p.MaskExact, make([]byte, 1))
		assert.NoError(t, err)
	})
}

func TestForgottenRequests(t *testing.T) {
	var out buffertest.Buffer
	cfg := p2p.Config{Logger: slog.New(slog.NewTextHandler(&out, nil))}
	p2ptest.RunConfig(t, 1, cfg, func(w *p2p.World) {
		w.Irecv(5, p2p.MaskExact, nil)
		w.Comm().Isend(0, 6, nil)
		ctx, cancel := context.WithCancel(background)
		cancel()
		_, err := w.Irecv(7, p2p.MaskExact, nil).Wait(ctx) // a Wait that does not end the operation
		assert.ErrorIs(t, err, context.Canceled)
		var dump bytes.Buffer
		assert.NoError(t, w.Dump(&dump))
		assert.Contains(t, dump.String(), "operations: 3\n")
		assert.Contains(t, dump.String(), here)
	})
	text := out.String()
	require.Equal(t, 3, strings.Count(text, "requests that were posted here were never completed"), text)
	require.Equal(t, 1, strings.Count(text, "messages were never received"), text)
	require.Contains(t, text, here)
}
