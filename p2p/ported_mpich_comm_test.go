package p2p_test

import (
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/p2p"
)

// TestPortedMPICHComms has what MPICH's test/mpi/pt2pt checks of several communicators.
func TestPortedMPICHComms(t *testing.T) {
	portedRows(t, 2, p2p.Config{}, portedRow{"huge_dupcomm", ranks(hugeDupcomm)})
}

// TestPortedMPICHCreateGroup has what MPICH's test/mpi/comm checks of MPI_Comm_create_group.
func TestPortedMPICHCreateGroup(t *testing.T) {
	portedRows(t, 4, p2p.Config{},
		portedRow{"comm_create_group", ranks(commCreateGroup)},
		portedRow{"comm_create_group_idup", ranks(commCreateGroupIdup)},
		portedRow{"comm_group_half", ranks(commGroupHalf)},
		portedRow{"comm_group_rand", ranks(commGroupRand)},
	)
}

// makeGroup has the members of a group of the World make it and meet there; others do nothing.
func makeGroup(t *testing.T, w *p2p.World, in func(rank int) bool) {
	var list []int
	for rank := range w.Size() {
		if in(rank) {
			list = append(list, rank)
		}
	}
	if in(w.Rank()) {
		c := newComm(t, w, list...)
		require.NoError(t, c.Barrier(background))
		require.NoError(t, c.Close())
	}
}

// commCreateGroup (comm_create_group): the even ranks make a Comm.
func commCreateGroup(t *testing.T, w *p2p.World) {
	makeGroup(t, w, func(rank int) bool { return rank%2 == 0 })
}

// commGroupHalf (comm_group_half): the first half of the ranks, and the next one, make a Comm.
func commGroupHalf(t *testing.T, w *p2p.World) {
	makeGroup(t, w, func(rank int) bool { return rank <= w.Size()/2 })
}

// commGroupRand (comm_group_rand): a hundred random groups make one, one after the other.
func commGroupRand(t *testing.T, w *p2p.World) {
	for i := range rounds(100) {
		r := rand.New(rand.NewPCG(uint64(i), 1)) // the same on all ranks
		members := r.Uint64()
		makeGroup(t, w, func(rank int) bool { return members>>rank&1 != 0 })
	}
}

// commCreateGroupIdup (comm_create_group_idup): all ranks make a Comm while a duplicate of that of
// the World is made, which half of them begin before, half after.
func commCreateGroupIdup(t *testing.T, w *p2p.World) {
	var copied *p2p.Comm
	var err error
	var under sync.WaitGroup
	idup := func() {
		under.Go(func() { copied, err = w.Comm().Dup(background) })
	}
	if w.Rank()%2 != 0 {
		idup()
	}
	c := newComm(t, w, 0, 1, 2, 3)
	if w.Rank()%2 == 0 {
		idup()
	}
	under.Wait()
	require.NoError(t, err)
	for _, c := range []*p2p.Comm{copied, c} {
		require.NoError(t, c.Barrier(background))
		require.NoError(t, c.Close())
	}
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
