//go:build linux

package soft

import (
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The benchmarks at wire level run against a second process, which is this test binary started
// again:
//
//	go test -run '^$' -bench TCPWire ./verbs/soft
//
// The child answers packets for QP 1, counts those for QP 2 and answers the last of a batch, and
// puts payloads of read responses where a device would, into one buffer.
const benchChildEnv = "TAGMATCH_TCP_BENCH_CHILD"

func TestMain(m *testing.M) {
	if a := os.Getenv(benchChildEnv); a != "" {
		benchChild(a)
		return
	}
	os.Exit(m.Run())
}

func benchChild(parent string) {
	raw, err := hex.DecodeString(parent)
	if err != nil {
		panic(err)
	}
	a, err := decodeAddress(raw)
	if err != nil {
		panic(err)
	}
	n, _ := newNotifier()
	d := &fakeDevice{self: &address{id: randomID(), rank: 1}, n: n}
	w, err := newTCPWire(wireEnv{cfg: &Config{TCPListen: "127.0.0.1:0"}, self: d.self, rx: d, notif: n})
	if err != nil {
		panic(err)
	}
	d.w = w.(*tcpWire)
	fmt.Println(hex.EncodeToString(d.self.encode()))
	dst := make([]byte, tcpMaxPayload)
	d.onPlace = func(_ link, h *header) []byte { return dst[:h.length] }
	small := make([]byte, 8)
	d.onRecv = func(l link, h *header, payload []byte) (bool, bool) {
		switch {
		case h.qpn == 1:
			l.send(&header{op: opSend, qpn: 1, length: 8, total: 8}, small, nil)
		case h.flags&flagAckReq != 0:
			l.send(&header{op: opAck, psn: h.psn}, nil, nil)
		}
		if h.op == opSend && len(payload) > 8 {
			copy(dst, payload)
		}
		return true, false
	}
	l, _ := d.w.connect(a)
	l.send(&header{op: opAck}, nil, nil)
	for len(d.down) == 0 {
		d.poll(64)
	}
}

// benchPeer starts the child and connects to it.
func benchPeer(b testing.TB) (*fakeDevice, *tcpLink, *os.Process) {
	d := newFakeDevice(b, 0, func(c *Config) { c.Secret = nil })
	cmd := exec.Command(os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), benchChildEnv+"="+hex.EncodeToString(d.self.encode()))
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
	a, err := decodeAddress(raw)
	require.NoError(b, err)
	l, err := d.w.connect(a)
	require.NoError(b, err)
	until(b, "connection", func() bool { return l.(*tcpLink).up }, d)
	return d, l.(*tcpLink), cmd.Process
}

func BenchmarkTCPWireRoundTrip(b *testing.B) {
	d, l, _ := benchPeer(b)
	got := 0
	d.onRecv = func(link, *header, []byte) (bool, bool) { got++; return true, false }
	small := make([]byte, 8)
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		l.send(&header{op: opSend, qpn: 1, length: 8, total: 8}, small, nil)
		d.w.flush()
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
				l.send(&header{op: opAck}, nil, nil)
				until(b, "connection", func() bool { return l.up }, p, d)
			}
			for _, c := range []struct {
				name string
				idle uint32
			}{{"active", 0}, {"idle", tcpIdle + 1}, {"long", tcpLongIdle + 1}} {
				b.Run(c.name, func(b *testing.B) {
					for range b.N {
						d.w.idle = c.idle
						d.w.release()
						d.w.poll(16)
					}
				})
			}
		})
	}
}

func BenchmarkTCPWireStream(b *testing.B) {
	for _, c := range []struct {
		name string
		op   opcode
		size int
	}{
		{"8", opSend, 8}, {"1KiB", opSend, 1 << 10}, {"64KiB", opSend, 64 << 10}, {"64KiB-placed", opReadResp, 64 << 10},
	} {
		b.Run(c.name, func(b *testing.B) {
			d, l, _ := benchPeer(b)
			acked := 0
			d.onRecv = func(link, *header, []byte) (bool, bool) { acked++; return true, false }
			// As a rendezvous does it: 4 MiB of memory, sent from where it is.
			mem := make([]byte, 4<<20)
			batch := max(1, len(mem)/c.size)
			batch = min(batch, 4096)
			b.SetBytes(int64(c.size))
			b.ReportAllocs()
			b.ResetTimer()
			for i, batches := 0, 0; i < b.N; i++ {
				h := header{op: c.op, qpn: 2, length: uint32(c.size), total: uint64(c.size)}
				last := (i+1)%batch == 0 || i == b.N-1
				if last {
					h.flags = flagAckReq
				}
				at := i % (len(mem) / c.size) * c.size
				for !l.send(&h, nil, mem[at:at+c.size]) {
					d.poll(16)
				}
				if last {
					for batches++; acked < batches; {
						d.poll(16)
					}
				} else if c.size < tcpDirect && i%64 == 63 {
					d.poll(16)
				}
			}
		})
	}
}
