package p2p_test

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/p2p"
)

// TestPortedVec has what MPICH's and UCX's tests check of messages in several parts.
func TestPortedVec(t *testing.T) {
	portedRows(t, 2, p2p.Config{},
		portedRow{"sendrecv2", sendrecv2},
		portedRow{"tag_match.send_recv_exp_iov", sendRecvIov},
		portedRow{"tag_xfer.iov_exp", iov(xfer{expected: true})},
		portedRow{"tag_xfer.iov_exp_truncated", iov(xfer{expected: true, truncated: true})},
		portedRow{"tag_xfer.iov_unexp", iov(xfer{})},
		portedRow{"tag_xfer.iov_exp_sync", iov(xfer{expected: true, sync: true})},
		portedRow{"tag_xfer.iov_unexp_sync", iov(xfer{sync: true})},
		portedRow{"tag_xfer.iov_with_empty_buffers", iovEmpty},
	)
}

// cut cuts b into parts of these sizes, and one of what is left, if anything is.
func cut(b []byte, sizes ...int) (parts [][]byte) {
	for _, size := range sizes {
		size = min(size, len(b))
		parts, b = append(parts, b[:size:size]), b[size:]
	}
	if len(b) > 0 {
		parts = append(parts, b)
	}
	return parts
}

// moveParts sends the parts out from ws[0] into the parts in at ws[1], which may have less room.
func (x xfer) moveParts(t *testing.T, ws []*p2p.World, out, in [][]byte) {
	t.Helper()
	from, to := ws[0].Comm(), ws[1].Comm()
	message, room := bytes.Join(out, nil), len(bytes.Join(in, nil))
	var r, s p2p.Request
	send := from.IsendVec
	if x.sync {
		send = from.IssendVec
	}
	if x.expected {
		r = to.IrecvVec(0, 7, in)
		s = send(1, 7, out)
	} else {
		s = send(1, 7, out)
		arrived(t, ws[1], ws[0])
		require.Equal(t, 1, ws[1].Metrics().UnexpectedNow)
		r = to.IrecvVec(0, 7, in)
	}
	st, err := r.Wait(background)
	require.Equal(t, p2p.Status{Source: 0, Tag: 7, Len: int64(len(message))}, st)
	if room < len(message) {
		require.ErrorIs(t, err, p2p.ErrTruncated)
		message = message[:room]
	} else {
		require.NoError(t, err)
	}
	requireBytes(t, message, bytes.Join(in, nil)[:len(message)])
	wait(t, s)
}

// sendrecv2: rows of 129 bytes of which 128 are sent and received, 8 to 63 of them: what is between
// the rows of the receiver stays as it was.
func sendrecv2(t *testing.T, ws []*p2p.World) {
	rows := func(b []byte) (list [][]byte) {
		for ; len(b) > 0; b = b[129:] {
			list = append(list, b[:128:128])
		}
		return list
	}
	for n := 8; n < 64; n += 4 {
		out, in := pattern(129*n, n), fresh(129*n)
		xfer{expected: n%8 == 0}.moveParts(t, ws, rows(out), rows(in))
		for i := range n {
			requireBytes(t, out[129*i:129*i+128], in[129*i:129*i+128])
			require.EqualValues(t, untouched, in[129*i+128])
		}
	}
}

// sendRecvIov: parts of many sizes, none too, into parts of the same sizes in the opposite order.
func sendRecvIov(t *testing.T, ws []*p2p.World) {
	for i, sizes := range [][]int{
		{}, {0}, {1000, 3000, 10_000}, {1000, 0, 10_000, 0}, {0, 3000, 0, 10_000, 0, 0, 0},
		{32, 16, 18, 15, 0, 0, 1, 78, 54, 198, 234_354, 1, 10, 100_000, 0, 6},
	} {
		total, opposite := 0, make([]int, len(sizes))
		for k, size := range sizes {
			total += size
			opposite[len(sizes)-1-k] = size
		}
		xfer{expected: true}.moveParts(t, ws, cut(pattern(total, i), sizes...), cut(fresh(total), opposite...))
	}
}

// iov: messages in 20 parts into 20 parts, which are divided otherwise, small and large.
func iov(x xfer) func(t *testing.T, ws []*p2p.World) {
	return func(t *testing.T, ws []*p2p.World) {
		for i, size := range []int{0, 20, 999, 30_000, 100_000, 1_000_003} {
			room := size
			if x.truncated {
				room /= 2
			}
			out, in := make([]int, 19), make([]int, 19)
			for k := range out {
				out[k], in[k] = size/20, room*(k+1)/200
			}
			x.moveParts(t, ws, cut(pattern(size, i), out...), cut(fresh(room), in...))
		}
	}
}

// iovEmpty: all parts but the last are empty, and nil.
func iovEmpty(t *testing.T, ws []*p2p.World) {
	out := append(make([][]byte, 39), pattern(1024, 1))
	xfer{expected: true}.moveParts(t, ws, out, cut(fresh(1024), make([]int, 39)...))
}
