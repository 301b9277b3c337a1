package soft

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/verbs"
)

// readRig is a queue pair with one READ at a time, of which the peer knows when it polls, and
// memory of both.
type readRig struct {
	*rig
	q            *queuePair
	theirs, mine []byte
	remote       verbs.MR
	local        verbs.MR
}

func newReadRig(t *testing.T) *readRig {
	r := &readRig{rig: newRig(t, NewFabric()), theirs: make([]byte, 64), mine: make([]byte, 64)}
	r.q = r.rig.q[0].(*queuePair)
	r.q.attr.MaxRdAtomic = 1
	for i := range r.theirs {
		r.theirs[i] = byte(100 + i)
	}
	var err error
	r.remote, err = r.rig.q[1].(*queuePair).pd.RegMR(r.theirs, verbs.AccessRemoteRead|verbs.AccessRemoteWrite|verbs.AccessLocalWrite)
	require.NoError(t, err)
	r.local, err = r.q.pd.RegMR(r.mine, verbs.AccessLocalWrite)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, r.remote.Dereg())
		require.NoError(t, r.local.Dereg())
	})
	return r
}

// post posts a request for byte i of both.
func (r *readRig) post(t *testing.T, op verbs.SendOpcode, flags verbs.SendFlags, i int) {
	_, err := r.q.PostSend(&verbs.SendWR{WRID: uint64(i), Opcode: op, Flags: flags, RemoteAddr: r.remote.Addr() + uint64(i),
		RKey: r.remote.RKey(), SGList: []verbs.SGE{{Data: r.mine[i : i+1], LKey: r.local.LKey()}}})
	require.NoError(t, err)
}

// ends polls until n requests have completed, in order from 0 on.
func (r *readRig) ends(t *testing.T, n int) {
	for next, polls := 0, 0; next < n; polls++ {
		require.Less(t, polls, 1000)
		r.poll(t, 1)
		for _, wc := range r.poll(t, 0) {
			require.Equal(t, verbs.WCSuccess, wc.Status)
			require.EqualValues(t, next, wc.WRID)
			next++
		}
	}
}

// TestQueueGrows: a queue pair has memory for as many requests off the fast path as were under way
// at once. What they are stays as it was when there is more.
func TestQueueGrows(t *testing.T) {
	const reads = 2*firstWork - 3
	r := newReadRig(t)
	for i := range reads {
		r.post(t, verbs.WRRDMARead, verbs.SendSignaled, i)
		if i < firstWork {
			require.Len(t, r.q.more, firstWork)
		}
	}
	require.Len(t, r.q.more, 2*firstWork)
	r.ends(t, reads)
	require.Equal(t, r.theirs[:reads], r.mine[:reads])
	r.post(t, verbs.WRRDMAWrite, verbs.SendSignaled, 0)
	r.ends(t, 1)
	require.Len(t, r.q.more, 2*firstWork)
}

// TestQueueGrowsBehindRead: requests that have ended take no memory, but a read under way before
// them keeps its own.
func TestQueueGrowsBehindRead(t *testing.T) {
	r := newReadRig(t)
	for range 3 * firstWork / 2 {
		r.post(t, verbs.WRRDMAWrite, 0, 1)
	}
	r.post(t, verbs.WRRDMAWrite, verbs.SendSignaled, 0)
	require.Len(t, r.q.more, firstWork)
	r.ends(t, 1)
	r.post(t, verbs.WRRDMARead, verbs.SendSignaled, 0)
	for i := range firstWork {
		r.post(t, verbs.WRRDMAWrite, 0, 8+i)
	}
	r.theirs[0] = 77
	r.ends(t, 1)
	require.EqualValues(t, 77, r.mine[0])
}
