package p2p_test

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/testlevel"
	"github.com/tagmatch/tagmatch/p2p"
)

// TestPortedUCXTagXfer has what UCX's test_ucp_tag_xfer checks of contiguous buffers. Its datatypes
// that pack by callbacks (generic) have no counterpart.
func TestPortedUCXTagXfer(t *testing.T) {
	portedRows(t, 2, p2p.Config{},
		portedRow{"tag_xfer.contig_exp", contig(xfer{expected: true})},
		portedRow{"tag_xfer.contig_exp_truncated", contig(xfer{expected: true, truncated: true})},
		portedRow{"tag_xfer.contig_unexp", contig(xfer{})},
		portedRow{"tag_xfer.send_contig_recv_contig_exp", xfer{expected: true}.row},
		portedRow{"tag_match_rndv.req_exp_auto_thresh", expected(1_148_576)},
	)
}

// TestPortedUCXTagXferRndv has the tests among them that have all but small messages go by
// rendezvous.
func TestPortedUCXTagXferRndv(t *testing.T) {
	portedRows(t, 2, p2p.Config{EagerLimit: 1000},
		portedRow{"tag_xfer.send_contig_recv_contig_exp_rndv", xfer{expected: true}.row},
		portedRow{"tag_xfer.send_contig_recv_contig_exp_rndv_truncated", xfer{expected: true, truncated: true}.row},
		portedRow{"tag_xfer.send_contig_recv_contig_unexp_rndv", xfer{}.row},
		portedRow{"tag_xfer.send_contig_recv_contig_unexp_rndv_truncated", xfer{truncated: true}.row},
		portedRow{"tag_xfer.test_xfer_len_offset", xferLenOffset},
	)
}

// xfer is one way for a message to get from ws[0] to ws[1].
type xfer struct {
	expected  bool // its receive is posted before it is sent
	truncated bool // into half a buffer
	sync      bool // by a synchronous send
}

// row moves one message of 1 MiB and a bit, which is no multiple of a chunk.
func (x xfer) row(t *testing.T, ws []*p2p.World) { x.move(t, ws, pattern(1_148_544, 1)) }

func (x xfer) move(t *testing.T, ws []*p2p.World, message []byte) {
	room := len(message)
	if x.truncated {
		room /= 2
	}
	x.into(t, ws, message, fresh(room))
}

func (x xfer) into(t *testing.T, ws []*p2p.World, message, buf []byte) {
	t.Helper()
	var r, s p2p.Request
	send := ws[0].Isend
	if x.sync {
		send = ws[0].Issend
	}
	if x.expected {
		r = ws[1].Irecv(ucxWant, ucxMask, buf)
		s = send(1, ucxTag, message)
	} else {
		s = unexpectedBy(t, ws, send, message)
		if x.sync {
			_, done, err := s.Test()
			require.NoError(t, err)
			require.False(t, done, "a synchronous send that nobody has received")
		}
		r = ws[1].Irecv(ucxWant, ucxMask, buf)
	}
	st, err := r.Wait(background)
	if len(buf) < len(message) {
		requireTruncated(t, message, buf, st, err, ucxTag)
	} else {
		require.NoError(t, err)
		received(t, message, buf, st)
	}
	wait(t, s)
}

// contig moves an empty message and many of random lengths, longer and longer ones.
func contig(x xfer) func(t *testing.T, ws []*p2p.World) {
	return func(t *testing.T, ws []*p2p.World) {
		x.move(t, ws, nil)
		random := rand.New(rand.NewPCG(1, 2)) // the same lengths each time
		for most, messages := 10, 64; most <= 10_000_000; most, messages = most*10, messages/2 {
			for i := range rounds(messages) {
				x.move(t, ws, pattern(random.IntN(most)+1, i))
			}
		}
	}
}

// xferLenOffset: eager messages and rendezvous of many lengths, in buffers at many offsets.
func xferLenOffset(t *testing.T, ws []*p2p.World) {
	const most = 128
	out, in := pattern(64<<10+most, 1), make([]byte, 64<<10+most)
	step := 8 << 10
	if !testlevel.CI() {
		step = 32 << 10
	}
	for offset := 0; offset <= most; offset += 16 {
		for length := 1 << 10; length <= 64<<10; length += step - 16 {
			for _, at := range []int{offset, most - offset} {
				copy(in, fresh(len(in)))
				xfer{expected: true, sync: true}.into(t, ws, out[at:at+length], in[at:at+length])
				require.Equal(t, fresh(at), in[:at])
				requireBytes(t, fresh(len(in)-at-length), in[at+length:])
			}
		}
	}
}
