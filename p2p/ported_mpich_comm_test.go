package p2p_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/p2p"
)

// TestPortedMPICHComms has what MPICH's test/mpi/pt2pt checks of several communicators.
func TestPortedMPICHComms(t *testing.T) {
	portedRows(t, 2, p2p.Config{}, portedRow{"huge_dupcomm", ranks(hugeDupcomm)})
}

// onEveryComm is a row that is played in communicators of each kind, as some of MPICH's tests are:
// that of all ranks, a duplicate, one with the ranks in the opposite order, and halves of that.
func onEveryComm(fn func(t *testing.T, c *p2p.Comm)) func(t *testing.T, ws []*p2p.World) {
	return ranks(func(t *testing.T, w *p2p.World) {
		all := w.Comm()
		fn(t, all)
		copied, err := all.Dup(background)
		require.NoError(t, err)
		reversed, err := all.Split(background, 0, -w.Rank())
		require.NoError(t, err)
		require.Equal(t, w.Size()-1-w.Rank(), reversed.Rank())
		half, err := reversed.Split(background, reversed.Rank()%2, 0)
		require.NoError(t, err)
		for _, c := range []*p2p.Comm{copied, reversed, half} {
			fn(t, c)
			require.NoError(t, c.Close())
		}
	})
}

// hugeDupcomm (huge_dupcomm): rendezvous with one tag in four communicators at once: each is
// received in its own, whatever the order of the receives.
func hugeDupcomm(t *testing.T, w *p2p.World) {
	const size = 600_000
	comms := make([]*p2p.Comm, 4)
	for i := range comms {
		var err error
		comms[i], err = w.Comm().Dup(background)
		require.NoError(t, err)
	}
	reqs, bufs := make([]p2p.Request, len(comms)), make([][]byte, len(comms))
	for i := range comms {
		if w.Rank() == 0 {
			reqs[i] = comms[i].Isend(1, 0, pattern(size, i))
			continue
		}
		last := len(comms) - 1 - i
		bufs[last] = fresh(size)
		reqs[last] = comms[last].Irecv(p2p.AnySource, p2p.AnyTag, bufs[last])
	}
	out := make([]p2p.Completion, len(reqs))
	require.NoError(t, p2p.WaitAll(background, reqs, out))
	for i, c := range comms {
		if w.Rank() == 1 {
			requireReceived(t, pattern(size, i), bufs[i], out[i].Status, 0, 0)
		}
		require.NoError(t, c.Close())
	}
}
