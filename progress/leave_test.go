package progress

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestLeave: a device that works by itself is told that nobody polls by each call that leaves a
// large receive in its list, or a large rendezvous at either end, and by no other.
func TestLeave(t *testing.T) {
	told := 0
	c := newCluster(t, 2, Config{Manual: true, PollingEnded: func() { told++ }}, fakeOpts{tags: 4})
	e, peer := c.e[0], c.e[1]
	after := func(want bool, call func()) {
		t.Helper()
		told = 0
		call()
		require.Equal(t, want, told > 0)
	}
	small, medium, large := make([]byte, 8), make([]byte, bulk-1), make([]byte, bulk)
	var r Request
	after(false, func() { e.Isend(1, 1, small) })
	after(false, func() { r = e.Irecv(1, 2, exact, small) })
	after(false, func() { e.Poll() })
	after(false, func() { _, _, _ = e.Iprobe(1, 3, exact) })
	peer.Isend(0, 2, small)
	after(false, func() { succeeded(t, r) })
	after(false, func() { r = e.Irecv(1, 2, exact, medium) })
	require.Equal(t, opOffloaded, r.op.state)
	peer.Isend(0, 2, medium)
	after(false, func() { e.Poll() })
	c.step()
	succeeded(t, r)
	c.take(0, 1, 1)

	recvs := []Request{e.Irecv(1, 4, exact, large)}
	peer.Isend(0, 6, small)
	after(true, func() { // it has to poll
		_, err := e.Recv(bg, 1, 6, exact, small)
		require.NoError(t, err)
	})
	for name, call := range map[string]func(){
		"Irecv": func() { recvs = append(recvs, e.Irecv(1, 4, exact, large)) },
		"IrecvVec": func() {
			recvs = append(recvs, e.IrecvVec(1, 4, exact, [][]byte{large[:1000], large[1000:]}))
		},
		"Test":   func() { open(t, recvs[0]) },
		"Iprobe": func() { _, _, _ = e.Iprobe(1, 3, exact) },
		"Poll":   func() { e.Poll() },
		"Queue": func() {
			q := e.NewQueue(1)
			q.Poll(make([]Completion, 1))
			require.NoError(t, q.Close())
		},
		"Poster": func() {
			p := e.Poster()
			p.Done()
		},
	} {
		t.Run(name, func(t *testing.T) { after(true, call) })
	}
	var sends []Request
	for range recvs {
		sends = append(sends, peer.Isend(0, 4, large))
	}
	c.step()
	succeeded(t, append(recvs, sends...)...)
	after(false, func() { e.Poll() })

	for _, send := range []func() Request{
		func() Request { return e.Isend(1, 7, large) },
		func() Request { return e.Issend(1, 7, large) },
	} {
		after(true, func() { r = send() })
		require.Equal(t, opRequested, r.op.state)
		recv := peer.Irecv(0, 7, exact, large)
		c.step()
		succeeded(t, recv, r)
		after(false, func() { e.Poll() })
	}

	peer.Isend(0, 8, large)
	m, found, err := e.Improbe(1, 8, exact)
	require.True(t, found)
	require.NoError(t, err)
	after(true, func() { r = m.Irecv(large) })
	c.step()
	succeeded(t, r)
}
