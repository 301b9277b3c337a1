//go:build linux

package tcp

import (
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/ports"
	"github.com/tagmatch/tagmatch/internal/secure"
	"github.com/tagmatch/tagmatch/internal/testlevel"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/notify"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/wire"
)

// The benchmarks at wire level run against a second process, which is this test binary started
// again:
//
//	go test -run '^$' -bench TCPWire ./verbs/soft
//
// The child answers packets for QP 1, counts those for QP 2 and answers the last of a batch, and
// puts payloads of read responses where a device would, into one buffer.
const (
	benchChildEnv = "TAGMATCH_TCP_BENCH_CHILD"
	benchTLSEnv   = "TAGMATCH_TCP_BENCH_TLS"
)

func TestMain(m *testing.M) {
	if a := os.Getenv(benchChildEnv); a != "" {
		benchChild(a)
		return
	}
	testlevel.ManyWait()
	os.Exit(m.Run())
}

func benchChild(parent string) {
	raw, err := hex.DecodeString(parent)
	if err != nil {
		panic(err)
	}
	a, err := wire.DecodeAddress(raw)
	if err != nil {
		panic(err)
	}
	n, _ := notify.NewEpoll()
	d := &fakeDevice{self: &wire.Address{ID: wire.NewDeviceID(), Rank: 1}, n: n}
	env := wire.Env{Self: d.self, Receiver: d, Notifier: n, Secret: []byte("secret"), PeerTimeout: 20 * time.Second}
	setting, err := secure.Parse(os.Getenv(benchTLSEnv))
	if err != nil {
		panic(err)
	}
	if env.TLS, err = setting.Load(); err != nil {
		panic(err)
	}
	w, err := Open(env, "127.0.0.1:0", ports.Range{})
	if err != nil {
		panic(err)
	}
	d.w = w.(*Wire)
	fmt.Println(hex.EncodeToString(d.self.Encode()))
	dst := make([]byte, maxPayload)
	d.onPlace = func(_ wire.Link, h *wire.Header) []byte { return dst[:h.Length] }
	small := make([]byte, 8)
	d.onRecv = func(l wire.Link, h *wire.Header, payload []byte) bool {
		switch {
		case h.QPN == 1:
			l.Send(&wire.Header{Op: wire.OpSend, QPN: 1, Length: 8, Total: 8}, small, nil)
		case h.Flags&wire.FlagAckReq != 0:
			l.Send(&wire.Header{Op: wire.OpAck, PSN: h.PSN}, nil, nil)
		}
		if h.Op == wire.OpSend && len(payload) > 8 {
			copy(dst, payload)
		}
		return true
	}
	l, _ := d.w.Connect(a)
	l.Send(&wire.Header{Op: wire.OpAck}, nil, nil)
	for len(d.down) == 0 {
		d.poll(64)
	}
}

// benchPeer starts the child and connects to it.
func benchPeer(b testing.TB) (*fakeDevice, *link, *os.Process) {
	d := newFakeDevice(b, 0)
	cmd := exec.Command(os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), benchChildEnv+"="+hex.EncodeToString(d.self.Encode()), benchTLSEnv+"="+testTLS.Kind())
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	require.NoError(b, err)
	require.NoError(b, cmd.Start())
	b.Cleanup(func() { d.stop(); _ = cmd.Wait() })
	line := make([]byte, 4096)
	k, err := out.Read(line)
	if err != io.EOF {
		require.NoError(b, err)
	}
	raw, err := hex.DecodeString(strings.TrimSpace(string(line[:k])))
	require.NoError(b, err)
	a, err := wire.DecodeAddress(raw)
	require.NoError(b, err)
	l, err := d.w.Connect(a)
	require.NoError(b, err)
	until(b, "connection", func() bool { return l.(*link).up }, d)
	return d, l.(*link), cmd.Process
}

// BenchmarkTLSWireRoundTrip and BenchmarkTLSWireStream are the same with TLS.
func BenchmarkTLSWireRoundTrip(b *testing.B) {
	withTLS(b)
	BenchmarkTCPWireRoundTrip(b)
}

func BenchmarkTLSWireStream(b *testing.B) {
	withTLS(b)
	BenchmarkTCPWireStream(b)
}

func BenchmarkTCPWireRoundTrip(b *testing.B) {
	d, l, _ := benchPeer(b)
	got := 0
	d.onRecv = func(wire.Link, *wire.Header, []byte) bool { got++; return true }
	small := make([]byte, 8)
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		l.Send(&wire.Header{Op: wire.OpSend, QPN: 1, Length: 8, Total: 8}, small, nil)
		d.w.Flush()
		for got <= i {
			d.poll(16)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/2, "ns/half")
}

// BenchmarkTCPWireIdle is what a poll costs when nothing comes: right after traffic, and later.
func BenchmarkTCPWireIdle(b *testing.B) {
	for _, peers := range []int{1, 12} {
		b.Run(fmt.Sprintf("%d-peers", peers), func(b *testing.B) {
			d := newFakeDevice(b, 0)
			for i := range peers {
				p := newFakeDevice(b, uint32(1+i))
				l := p.link(b, d)
				l.Send(&wire.Header{Op: wire.OpAck}, nil, nil)
				until(b, "connection", func() bool { return l.up }, p, d)
			}
			for _, c := range []struct {
				name string
				idle uint32
			}{{"active", 0}, {"idle", shortIdle + 1}, {"long", longIdle + 1}} {
				b.Run(c.name, func(b *testing.B) {
					for range b.N {
						d.w.idle = c.idle
						d.w.Poll(16)
					}
				})
			}
		})
	}
}

func BenchmarkTCPWireStream(b *testing.B) {
	for _, c := range []struct {
		name string
		op   wire.Opcode
		size int
	}{
		{"8", wire.OpSend, 8}, {"1KiB", wire.OpSend, 1 << 10}, {"64KiB", wire.OpSend, 64 << 10}, {"64KiB-placed", wire.OpReadResp, 64 << 10},
	} {
		b.Run(c.name, func(b *testing.B) {
			d, l, _ := benchPeer(b)
			acked := 0
			d.onRecv = func(wire.Link, *wire.Header, []byte) bool { acked++; return true }
			// As a rendezvous does it: 4 MiB of memory, sent from where it is.
			mem := make([]byte, 4<<20)
			batch := max(1, len(mem)/c.size)
			batch = min(batch, 4096)
			b.SetBytes(int64(c.size))
			b.ReportAllocs()
			b.ResetTimer()
			for i, batches := 0, 0; i < b.N; i++ {
				h := wire.Header{Op: c.op, QPN: 2, Length: uint32(c.size), Total: uint64(c.size)}
				last := (i+1)%batch == 0 || i == b.N-1
				if last {
					h.Flags = wire.FlagAckReq
				}
				at := i % (len(mem) / c.size) * c.size
				for !l.Send(&h, nil, mem[at:at+c.size]) {
					d.poll(16)
				}
				if last {
					for batches++; acked < batches; {
						d.poll(16)
					}
				} else if c.size < DirectFrom && i%64 == 63 {
					d.poll(16)
				}
			}
		})
	}
}
