package progress

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The scenarios of TMO 7.2 that the engine has a part in, by their numbers. Rank 0 sends, rank 1
// receives with a device.

type race struct {
	*cluster
	dev *fakeDevice
	e   *Engine
}

func newRace(t *testing.T, cfg Config, opts fakeOpts) *race {
	cfg.Manual = true
	if cfg.OffloadMin == 0 {
		cfg.OffloadMin = -1
	}
	c := newCluster(t, 2, cfg, opts)
	r := &race{c, c.net.nodes[1].dev, c.e[1]}
	t.Cleanup(func() {
		if !t.Failed() {
			assert.Empty(t, r.dev.list) // not require, which would hide what the test panics with
			assert.Zero(t, r.e.off.entries+r.e.off.slots.used)
			for _, e := range c.e {
				assert.NoError(t, e.broken) // the device would have said something that cannot be
			}
		}
	})
	return r
}

func (r *race) m() OffloadMetrics { return r.e.Metrics().Offload }

func (r *race) recv(tag, mask uint64, size int) (Request, []byte) {
	buf := make([]byte, size)
	return r.e.Irecv(AnySource, tag, mask, buf), buf
}

func (r *race) send(tag uint64, size int, seed byte) Request {
	return r.cluster.e[0].Isend(1, tag, fill(size, seed))
}

// got checks that a receive has ended with the message of that size and seed.
func (r *race) got(req Request, buf []byte, size int, seed byte) {
	r.t.Helper()
	st, err := ended(r.t, req)
	require.NoError(r.t, err)
	require.Equal(r.t, int64(size), st.Len)
	require.Equal(r.t, fill(size, seed), buf[:size])
}

func (r *race) canceled(req Request) {
	r.t.Helper()
	_, err := ended(r.t, req)
	require.Equal(r.t, ErrCanceled, err)
}

// dormant posts a receive behind an unexpected message of tag other, which is not polled before
// release.
func (r *race) dormant(tag, other uint64) (Request, []byte) {
	r.dev.holdCQ = true
	r.send(other, 8, 99)
	r.e.Poll() // the device classifies it
	req, buf := r.recv(tag, exact, 64)
	r.e.Poll() // the device executes the ADD
	require.Len(r.t, r.dev.list, 1)
	require.False(r.t, r.dev.list[0].live)
	return req, buf
}

func (r *race) release() {
	r.dev.holdCQ, r.dev.holdOps, r.dev.holdData = false, false, false
	r.step()
}
