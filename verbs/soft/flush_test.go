package soft

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/loop"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/wire"
)

// TestFailureOvertakesRead: the peer refuses a send while a read before it, which the peer has no
// part in, is being copied. Both complete, the send with the cause.
func TestFailureOvertakesRead(t *testing.T) {
	r := newRig(t, loop.NewFabric(loop.Options{Direct: true}))
	q, peer := r.q[0].(*queuePair), r.q[1].(*queuePair)
	q.attr.MaxRdAtomic = 1
	q.hdr.Status = 0 // not one try when the peer is not ready
	src, dst := make([]byte, 3*wire.MaxChunk), make([]byte, 3*wire.MaxChunk)
	from, err := peer.pd.RegMR(src, verbs.AccessRemoteRead)
	require.NoError(t, err)
	to, err := q.pd.RegMR(dst, verbs.AccessLocalWrite)
	require.NoError(t, err)
	read := verbs.SendWR{WRID: 1, Opcode: verbs.WRRDMARead, Flags: verbs.SendSignaled, SGList: []verbs.SGE{{Data: dst, LKey: to.LKey()}},
		RemoteAddr: from.Addr(), RKey: from.RKey()}
	_, err = q.PostSend(&read)
	require.NoError(t, err)
	r.post(t, 0, 2)
	r.poll(t, 1)
	var got []verbs.WC
	for range 10 {
		got = append(got, r.poll(t, 0)...)
	}
	require.Equal(t, verbs.QPSErr, q.State())
	require.Len(t, got, 2)
	require.Equal(t, []uint64{1, 2}, []uint64{got[0].WRID, got[1].WRID})
	require.Equal(t, []verbs.WCStatus{verbs.WCWRFlushErr, verbs.WCRNRRetryExcErr}, []verbs.WCStatus{got[0].Status, got[1].Status})
	require.NoError(t, from.Dereg())
	require.NoError(t, to.Dereg())
}
