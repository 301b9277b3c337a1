//go:build linux

package tcp

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/tagmatch/tagmatch/verbs/soft/internal/wire"
)

// BenchmarkCost is the processor time that a message takes at both ends together, which one
// goroutine drives by turns: nobody waits. Short messages go one by one, long ones as a rendezvous
// sends them, from where they are and to where they belong.
func BenchmarkCost(b *testing.B) {
	for _, size := range []int{64, 4 << 10, 64 << 10, 1 << 20} {
		for _, tls := range []string{"plain", "TLS"} {
			b.Run(fmt.Sprintf("%d/%s", size, tls), func(b *testing.B) {
				if tls == "TLS" {
					withTLS(b)
				}
				_, to, out, _ := joined(b)
				src, dst := bytes.Repeat([]byte{1}, 4<<20), bytes.Repeat([]byte{2}, 4<<20) // pages that are there
				at, got := 0, 0
				to.onPlace = func(_ wire.Link, h *wire.Header) []byte { return dst[at+got:][:h.Length] }
				to.onRecv = func(_ wire.Link, h *wire.Header, payload []byte) bool {
					if place := dst[at+got:]; &place[0] != &payload[0] {
						copy(place, payload)
					}
					got += len(payload)
					return true
				}
				op := wire.OpReadResp
				if size < DirectFrom {
					op = wire.OpSend
				}
				start := processorTime(b)
				b.SetBytes(int64(size))
				b.ResetTimer()
				for i := range b.N {
					at, got = i*size%len(src), 0
					for sent := 0; sent < size; {
						n := min(size-sent, out.MaxReadPayload())
						h := wire.Header{Op: op, Length: uint32(n), Total: uint64(size)}
						if out.Send(&h, nil, src[at+sent:][:n]) {
							sent += n
						}
						out.w.Poll(16)
						to.w.Poll(16)
					}
					for got < size {
						out.w.Poll(16)
						to.w.Poll(16)
					}
				}
				b.ReportMetric(float64(processorTime(b)-start)/float64(b.N), "cpu-ns/op")
			})
		}
	}
}

// BenchmarkCostLimit is what BenchmarkCost could reach at 1 MiB: the same bytes through sockets and
// AES-GCM, without anything of the library.
func BenchmarkCostLimit(b *testing.B) {
	const size, record = 1 << 20, maxPayload
	for _, tls := range []string{"plain", "TLS"} {
		b.Run(tls, func(b *testing.B) {
			_, _, x, y := joined(b)
			block, err := aes.NewCipher(make([]byte, 16))
			require.NoError(b, err)
			gcm, err := cipher.NewGCM(block)
			require.NoError(b, err)
			nonce := make([]byte, gcm.NonceSize())
			src, dst := bytes.Repeat([]byte{1}, 4<<20), bytes.Repeat([]byte{2}, 4<<20)
			out, raw := make([]byte, 0, record+16), make([]byte, record+16)
			move := func(from, to []byte) {
				for len(to) > 0 {
					n, _ := unix.Write(x.fd, from)
					from = from[max(n, 0):]
					n, _ = unix.Read(y.fd, to)
					to = to[max(n, 0):]
				}
			}
			start := processorTime(b)
			b.SetBytes(size)
			b.ResetTimer()
			for i := range b.N {
				from, to := src[i*size%len(src):][:size], dst[i*size%len(src):][:size]
				if tls == "plain" {
					move(from, to)
					continue
				}
				for at := 0; at < size; at += record {
					out = gcm.Seal(out[:0], nonce, from[at:][:record], nil)
					move(out, raw)
					_, err := gcm.Open(to[at:at], nonce, raw, nil)
					require.NoError(b, err)
				}
			}
			b.ReportMetric(float64(processorTime(b)-start)/float64(b.N), "cpu-ns/op")
		})
	}
}

// processorTime is that of this process, in nanoseconds.
func processorTime(t testing.TB) int64 {
	var u unix.Rusage
	require.NoError(t, unix.Getrusage(unix.RUSAGE_SELF, &u))
	return u.Utime.Nano() + u.Stime.Nano()
}
