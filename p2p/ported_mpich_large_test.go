package p2p_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/p2p"
)

// TestPortedMPICHLarge has what MPICH's test/mpi/pt2pt checks of large messages.
func TestPortedMPICHLarge(t *testing.T) {
	portedRows(t, 2, p2p.Config{},
		portedRow{"manylmt", ranks(func(t *testing.T, w *p2p.World) { manyLarge(t, w, 0) })},
		portedRow{"huge_anysrc", ranks(func(t *testing.T, w *p2p.World) { manyLarge(t, w, p2p.AnySource) })},
		portedRow{"huge_underflow", ranks(hugeUnderflow)},
	)
}

// manyLarge: many large messages to one rank at once, of several chunks each, in order: manylmt
// receives them from rank 0, huge_anysrc from any.
func manyLarge(t *testing.T, w *p2p.World, source int) {
	const size = 600_000
	c, messages := w.Comm(), max(rounds(32), 6)
	reqs, bufs := make([]p2p.Request, messages), make([][]byte, messages)
	for i := range reqs {
		if w.Rank() == 0 {
			reqs[i] = c.Isend(1, 0, pattern(size, i))
		} else {
			bufs[i] = fresh(size)
			reqs[i] = c.Irecv(source, 0, bufs[i])
		}
	}
	out := make([]p2p.Completion, messages)
	require.NoError(t, p2p.WaitAll(background, reqs, out))
	for i, buf := range bufs {
		if w.Rank() == 1 {
			requireReceived(t, pattern(size, i), buf, out[i].Status, 0, 0)
		}
	}
}

// hugeUnderflow (huge_underflow): one byte into a buffer for a huge message, which is posted before
// or not.
func hugeUnderflow(t *testing.T, w *p2p.World) {
	c := w.Comm()
	for _, posted := range []bool{false, true} {
		if w.Rank() == 0 {
			if posted {
				meetAll(t, w)
			}
			require.NoError(t, c.Send(background, 1, 0, []byte{7}))
			continue
		}
		buf := fresh(10 << 20)
		r := c.Irecv(0, 0, buf)
		if posted {
			meetAll(t, w)
		}
		requireReceived(t, []byte{7}, buf, wait(t, r), 0, 0)
	}
}
