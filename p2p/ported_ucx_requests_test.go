package p2p_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/p2p"
)

// TestPortedUCXRequests has what UCX's test_ucp_tag_match checks of requests that nobody waits for.
func TestPortedUCXRequests(t *testing.T) {
	portedRows(t, 2, p2p.Config{},
		portedRow{"tag_match.send_recv_unexp_rqfree", sendRecvFreed},
		portedRow{"tag_match.send_recv_cb_release", sendRecvReported},
	)
}

// sendRecvFreed: a receive that was freed gets its message. The test looks into the buffer, which a
// program must not: the message behind this one tells that the library is done with it.
func sendRecvFreed(t *testing.T, ws []*p2p.World) {
	message, buf := pattern(8, 1), fresh(8)
	ws[1].Irecv(ucxWant, ucxMask, buf).Free()
	require.NoError(t, ws[0].Send(background, 1, ucxTag, message))
	arrived(t, ws[1], ws[0])
	require.Zero(t, ws[1].Metrics().UnexpectedNow)
	requireBytes(t, message, buf)
}

// sendRecvReported: the outcome of a receive is reported where it is collected, once. UCX does so
// by a callback that releases the request.
func sendRecvReported(t *testing.T, ws []*p2p.World) {
	message, buf := pattern(8, 1), fresh(8)
	wait(t, unexpected(t, ws, message))
	q := ws[1].NewQueue(1)
	r := ws[1].Irecv(0, 1<<62, buf) // any tag
	r.Notify(q, 7)
	out := make([]p2p.Completion, 2)
	n, err := q.Wait(background, out)
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.EqualValues(t, 7, out[0].Data)
	require.NoError(t, out[0].Err)
	received(t, message, buf, out[0].Status)
	require.Zero(t, q.Poll(out))
	_, err = r.Wait(background)
	require.ErrorIs(t, err, p2p.ErrInactive)
	require.NoError(t, q.Close())
}
