package p2p_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/p2p"
)

// TestPortedSync has what MPICH's and UCX's tests check of synchronous sends alone; the rows of
// other tests that have a synchronous form use senders.
func TestPortedSync(t *testing.T) {
	portedRows(t, 2, p2p.Config{},
		portedRow{"huge_ssend", ranks(hugeSsend)},
		portedRow{"tag_match.sync_send_unexp", xfer{sync: true}.of(8)},
		portedRow{"tag_match_rndv.sync_send_unexp", xfer{sync: true}.of(1_148_576)},
		portedRow{"tag_xfer.contig_exp_sync,contig_exp_sync_zcopy", contig(xfer{expected: true, sync: true})},
		portedRow{"tag_xfer.contig_unexp_sync", contig(xfer{sync: true})},
	)
}

func TestPortedSyncRndv(t *testing.T) {
	portedRows(t, 2, p2p.Config{EagerLimit: 1000},
		portedRow{"tag_xfer.send_contig_recv_contig_exp_sync_rndv", xfer{sync: true, expected: true}.row},
		portedRow{"tag_xfer.send_contig_recv_contig_exp_sync_rndv_truncated", xfer{sync: true, expected: true, truncated: true}.row},
		portedRow{"tag_xfer.send_contig_recv_contig_unexp_sync_rndv", xfer{sync: true}.row},
		portedRow{"tag_xfer.send_contig_recv_contig_unexp_sync_rndv_truncated", xfer{sync: true, truncated: true}.row},
	)
}

// of is a row for a message of this size.
func (x xfer) of(size int) func(t *testing.T, ws []*p2p.World) {
	return func(t *testing.T, ws []*p2p.World) { x.move(t, ws, pattern(size, 1)) }
}

// hugeSsend (huge_ssend): a large message by Ssend.
func hugeSsend(t *testing.T, w *p2p.World) {
	const size = 4 << 20
	message := pattern(size, 1)
	if w.Rank() == 0 {
		require.NoError(t, w.Comm().Ssend(background, 1, 0, message))
		return
	}
	buf := fresh(size)
	st, err := w.Comm().Recv(background, 0, 0, buf)
	require.NoError(t, err)
	requireReceived(t, message, buf, st, 0, 0)
}
