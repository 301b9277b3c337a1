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

// spec is a receive from any source: its tag, its mask and the bytes of its buffer.
type spec struct {
	tag, mask uint64
	size      int
}

// posted are receives in the order of their posting.
type posted struct {
	r    *race
	reqs []Request
	bufs [][]byte
}

func (r *race) post(list ...spec) *posted {
	p := &posted{r: r}
	for _, s := range list {
		req, buf := r.recv(s.tag, s.mask, s.size)
		p.reqs, p.bufs = append(p.reqs, req), append(p.bufs, buf)
	}
	return p
}

// gets sends a message, which receive i gets.
func (p *posted) gets(i int, tag uint64) {
	p.r.t.Helper()
	p.r.send(tag, 8, byte(i))
	p.r.step()
	p.r.got(p.reqs[i], p.bufs[i], 8, byte(i))
}

// getAll sends a message for each receive, before anybody polls; they get them in their order.
func (p *posted) getAll(tags ...uint64) {
	p.r.t.Helper()
	for i, tag := range tags {
		p.r.send(tag, 8, byte(i))
	}
	p.r.release()
	for i := range tags {
		p.r.got(p.reqs[i], p.bufs[i], 8, byte(i))
	}
}

// matches checks that the device matches the message of a new receive.
func (r *race) matches() {
	r.t.Helper()
	before := r.m().Matched
	p := r.post(spec{5, exact, 64})
	r.step()
	p.gets(0, 5)
	require.Equal(r.t, before+1, r.m().Matched)
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
