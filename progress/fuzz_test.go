package progress

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/transport"
)

// FuzzPeer has one rank say what the input holds, while another one says and does what is right.
// Whatever it says, that other one is not lost, and its messages are right.
func FuzzPeer(f *testing.F) {
	for kind := range 5 {
		f.Add([]byte{byte(kind), 24, 1, 2, 3, 4, 5, 6, 7, 8, wireVersion, byte(kind), 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9, 9, 9, 9})
	}
	for kind := ctrlWithdraw; kind <= ctrlUnreadable; kind++ {
		f.Add(append([]byte{3, 40}, ctrl{kind: kind, id: rndvName, body: make([]byte, wantLen)}.encode()...))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		c := manual(t, 3, fakeOpts{revoke: true})
		e := c.e[0]
		for i := 0; len(in) > 2 && i < 200; i++ {
			what, n := in[0], min(int(in[1]), len(in)-2)
			said := in[2 : 2+n]
			in = in[2+n:]
			switch what % 12 {
			case 5:
				e.Irecv(1, uint64(n)%4, exact, make([]byte, n)).Free()
			case 6:
				e.Irecv(AnySource, uint64(n)%4, 1<<40|3, make([]byte, n)).Free() // none of the other rank
			case 7:
				e.Isend(1, uint64(n), fill(8*n, 1)).Free()
			case 8:
				r := e.Irecv(1, uint64(n)%4, exact, make([]byte, n))
				r.Cancel()
				r.Free()
			case 9:
				_, _, _ = e.Iprobe(1, uint64(n)%4, 3)
			case 10:
				if m, ok, _ := e.Improbe(1, uint64(n)%4, 3); ok {
					m.Discard()
				}
			case 11:
				c.step()
			default:
				c.callback(0, func(s transport.Sink) { say(s, 1, what%12, said) })
			}
		}
		c.step()
		require.Nil(t, e.peers[2].lost)
		require.Nil(t, c.e[2].peers[0].lost)
		e.AckFailures(AnySource, 1)
		for size := range []int{0, 1, 2} {
			const tag = 1 << 40
			recv, buf := e.Irecv(2, tag, exact, make([]byte, 1000)), make([]byte, 1000)
			back := c.e[2].Irecv(0, tag, exact, buf)
			sent := []Request{c.e[2].Isend(0, tag, fill(400*size, 3)), e.Isend(2, tag, fill(400*size, 4))}
			c.step()
			require.EqualValues(t, 400*size, statusOf(t, recv).Len)
			c.got(back, buf, 400*size, 4)
			succeeded(t, sent...)
		}
	})
}

// say calls one of the methods by which a transport passes on what a peer has sent.
func say(s transport.Sink, src int, what byte, b []byte) {
	d := decoder{b}
	switch what {
	case 0:
		s.Eager(src, uint32(d.uint(4)), d.uint(8), d.rest(256))
	case 1:
		h := transport.RndvHdr{AppCtx: uint32(d.uint(4)), Tag: d.uint(8) & 7, RKey: uint32(d.uint(2)), VA: d.uint(8), Len: d.uint(8), Extra: d.rest(24)}
		s.Rndv(src, &h)
	case 2:
		s.Fin(src, uint32(d.uint(4)))
	default:
		s.Ctrl(src, d.rest(256))
	}
}

// decoder takes numbers from the front of bytes, and zeroes where there are none left.
type decoder struct{ b []byte }

func (d *decoder) uint(size int) (v uint64) {
	for i := range min(size, len(d.b)) {
		v |= uint64(d.b[i]) << (8 * i)
	}
	d.b = d.b[min(size, len(d.b)):]
	return v
}

func (d *decoder) rest(most int) []byte { return d.b[:min(most, len(d.b))] }
