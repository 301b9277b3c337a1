package transporttest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/transport"
)

// testTagsBeyondQueue calls Del and ForceDel, without a poll, far more often than the device's
// queue of list operations has room: none is refused.
func testTagsBeyondQueue(t *testing.T, h Harness, opts Options) {
	const n = 60
	opts.MaxTags = 2 * n
	for _, ops := range []int{1, 2, 5} {
		opts.MaxOps = ops
		x := h.tagged(t, 2, opts)
		x.removeBeyondQueue(n)
		x.sleepBeyondQueue(n)
		x.roomForAll()
		for range 50 {
			x.sync()
		}
		if x.l.Sync(x.handled()) == nil {
			require.Equal(t, transport.ErrAgain, x.l.Sync(x.handled()), "one at a time")
		}
	}
}

const firstDormant = 500 // its id and tag

// removeBeyondQueue removes n live receives by Del, and n dormant ones by ForceDel, each with the
// count that includes its message. They are executed in order with these counts: while some are
// queued, all other dormant entries stay dormant, and no Add or Sync overtakes them.
func (x *tagged) removeBeyondQueue(n uint64) {
	x.t.Helper()
	for i := range n {
		x.add(i, i, exact, make([]byte, 8))
	}
	x.send(1000, nil)
	x.event("eager", 0)
	for i := range n {
		x.post(func() error { return x.l.Add(firstDormant+i, firstDormant+i, exact, make([]byte, 8), 0) })
	}
	for i := range n {
		x.send(firstDormant+i, nil)
	}
	x.event("eager", int(n))
	for i := range n {
		require.NoError(x.t, x.l.Del(i, uint32(i)+1))
		require.NoError(x.t, x.l.ForceDel(firstDormant+i, uint32(i)+2))
	}
	require.Zero(x.t, x.l.Free())
	require.Equal(x.t, transport.ErrAgain, x.l.Add(2000, 2000, exact, nil, x.handled()))
	require.Equal(x.t, transport.ErrAgain, x.l.Sync(x.handled()))
	x.event("deleted", int(n/2))
	x.send(firstDormant+n-1, nil) // the last forced DEL: the device may still have its entry
	x.event("eager", int(n)+1)
	x.event("deleted", int(n)-1)
	for i, e := range x.b.of("deleted") {
		require.Equal(x.t, Event{Kind: "deleted", ID: uint64(i), OK: true}, e, "in the order of the calls")
	}
	require.Empty(x.t, x.b.of("matched"))
	x.until("room", func() bool { return x.l.Free() > 0 })
}

// sleepBeyondQueue sleeps until n outcomes were reported: queued operations do not prevent the
// sleep, and their outcomes end it.
func (x *tagged) sleepBeyondQueue(n uint64) {
	x.t.Helper()
	const base = 3000
	for i := range n {
		x.add(base+i, base+i, exact, nil)
	}
	had := len(x.b.of("deleted"))
	for i := range n {
		require.NoError(x.t, x.l.Del(base+i, x.handled()))
	}
	var err error
	done := inBackground(func() { err = park(x.b, func() bool { return len(x.b.of("deleted")) == had+int(n) }) })
	await(x.t, "a sleeper to have the outcomes of all deletions", done)
	require.NoError(x.t, err)
}
