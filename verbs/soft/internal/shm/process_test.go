//go:build linux

package shm

import (
	"bufio"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/tagmatch/tagmatch/internal/testlevel"
	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/mem"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/notify"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/wire"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/wiretest"
)

// The second process of these tests and benchmarks is this binary started again with the parent's
// address in the environment. It ends when the link does.
const (
	shmChildEnv = "TAGMATCH_SHM_CHILD"
	shmPinEnv   = "TAGMATCH_SHM_PIN" // set: on the second processor
)

func init() {
	if a := os.Getenv(shmChildEnv); a != "" {
		if os.Getenv(shmPinEnv) != "" {
			pin(1)
		}
		if err := shmChild(a); err != nil {
			fmt.Fprintln(os.Stderr, "child:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
}

// What the child does with a packet, by its QP number.
const (
	childEcho  = 1 // answers with a packet of the same size
	childCount = 2 // answers those with wire.FlagAckReq
	childRead  = 3 // reads total bytes at addr/rkey and answers with the status
)

type childDevice struct {
	table *mem.Table
	down  error
	dst   []byte
}

func (d *childDevice) LinkUp(wire.Link, *wire.Address)      {}
func (d *childDevice) Place(wire.Link, *wire.Header) []byte { return nil }
func (d *childDevice) PlaceGone(wire.Link, *wire.Header)    {}
func (d *childDevice) LinkYielded(_ wire.Link, _ *wire.Address, err error) {
	d.down = err
}
func (d *childDevice) LinkDown(_ wire.Link, err error) { d.down = err }
func (d *childDevice) Receive(l wire.Link, h *wire.Header, payload []byte) (ok, more bool) {
	switch h.QPN {
	case childEcho:
		r := wire.Header{Op: wire.OpSend, QPN: 1, Length: h.Length, Total: h.Total}
		return l.Send(&r, payload, nil), true
	case childCount:
		if len(payload) > 64 {
			copy(d.dst, payload)
		}
		return h.Flags&wire.FlagAckReq == 0 || l.Send(&wire.Header{Op: wire.OpAck, PSN: h.PSN}, nil, nil), true
	case childRead:
		st := l.Memory().Read(d.dst[:h.Total], h.Addr, h.RKey)
		return l.Send(&wire.Header{Op: wire.OpNak, Status: uint8(st)}, nil, nil), true
	}
	return true, true
}

func shmChild(parent string) error {
	raw, err := hex.DecodeString(parent)
	if err != nil {
		return err
	}
	a, err := wire.DecodeAddress(raw)
	if err != nil {
		return err
	}
	d := &childDevice{table: mem.NewTable(), dst: make([]byte, wire.MaxChunk)}
	n, err := notify.NewEpoll()
	if err != nil {
		return err
	}
	self := &wire.Address{ID: wire.NewDeviceID(), Rank: 1, PID: uint32(os.Getpid())}
	w, err := Open(wire.Env{Self: self, Receiver: d, Notifier: n, Secret: []byte("secret"), PeerTimeout: 20 * time.Second},
		Config{RingBytes: 256 << 10, Regions: d.table})
	if err != nil {
		return err
	}
	l, err := w.Connect(a)
	if err != nil {
		return err
	}
	for !l.Send(&wire.Header{Op: wire.OpAck, PSN: 99}, nil, nil) {
		w.Poll(1)
	}
	fmt.Println("up")
	for idle := 0; d.down == nil; idle++ {
		if w.Poll(64) > 0 {
			idle = 0
		} else if idle%10000 == 9999 {
			yield() // the machine may have other things to do
		}
	}
	w.Close()
	return n.Close()
}

// pin keeps the calling goroutine on a processor, where the machine lets it.
func pin(cpu int) {
	runtime.LockOSThread()
	var set unix.CPUSet
	set.Set(cpu)
	_ = unix.SchedSetaffinity(0, &set)
}

// pinnedSHMChild starts a second process for a benchmark, each process on a processor of its own.
func pinnedSHMChild(b *testing.B) (*shmEnd, *link) {
	b.Setenv(shmPinEnv, "1")
	e, l, _ := startSHMChild(b)
	pin(0) // not undone: the thread ends with the benchmark's goroutine
	return e, l
}

// yield lets another process run.
func yield() { _, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }

// startSHMChild starts a second process and waits until it is connected.
func startSHMChild(t testing.TB) (*shmEnd, *link, *exec.Cmd) {
	e := newSHMEnd(t, 0, func(e *shmEnd) { e.cfg.RingBytes = 256 << 10 })
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), shmChildEnv+"="+hex.EncodeToString(e.self.Encode()))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { e.stop(); _ = cmd.Process.Kill(); _ = cmd.Wait() })
	pollUntil(t, "the child", func() bool { return len(e.got) > 0 }, e)
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "up\n", line)
	var l *link
	for _, l = range e.w.links {
	}
	e.got, e.data = nil, nil
	return e, l, cmd
}

func TestSHMTwoProcesses(t *testing.T) {
	e, l, cmd := startSHMChild(t)
	require.Equal(t, cmd.Process.Pid, l.peer.pid)
	for i := range 500 {
		size := i * 131 % 60000
		msg := []byte(strings.Repeat(string(rune('a'+i%26)), size))
		h := wire.Header{Op: wire.OpSend, QPN: childEcho, Length: uint32(size), Total: uint64(size)}
		pollUntil(t, "room", func() bool { return l.Send(&h, msg, nil) }, e)
		pollUntil(t, "the echo", func() bool { return len(e.got) > 0 }, e)
		require.Equal(t, string(msg), string(e.data[0]))
		e.got, e.data = nil, nil
	}
	buf := make([]byte, 100000)
	key, err := addRegion(e.table, buf, verbs.AccessRemoteRead)
	require.NoError(t, err)
	defer e.table.Remove(key)
	for k, want := range map[uint32]verbs.WCStatus{key: verbs.WCSuccess, key + 1: verbs.WCRemAccessErr} {
		e.got = nil
		h := wire.Header{Op: wire.OpReadReq, QPN: childRead, Addr: mem.AddrOf(buf), RKey: k, Total: uint64(len(buf))}
		require.True(t, l.Send(&h, nil, nil))
		pollUntil(t, "the read", func() bool { return len(e.got) > 0 }, e)
		require.Equal(t, uint8(want), e.got[0].Status)
	}
}

// TestSHMKilled: the death of a peer is noticed within a second, spinning and parked, and nothing
// is left of it.
func TestSHMKilled(t *testing.T) {
	tmp := t.TempDir() // nobody else's
	t.Setenv("TMPDIR", tmp)
	for _, parked := range []bool{false, true} {
		e, l, cmd := startSHMChild(t)
		pid := l.peer.pid
		start := time.Now()
		require.NoError(t, cmd.Process.Signal(syscall.SIGKILL))
		for len(e.down) == 0 && time.Since(start) < testlevel.Patience(10*time.Second) {
			if parked {
				e.w.Arm(true)
			}
			if e.poll() == 0 && parked && len(e.down) == 0 {
				wiretest.Within(t, "the wake", func() { require.NoError(t, e.notif.Wait()) })
			}
		}
		took := time.Since(start)
		require.Len(t, e.down, 1)
		require.ErrorContains(t, e.down[0], fmt.Sprintf("rank 1 (pid %d): the peer's process has ended", pid))
		t.Logf("parked %v: noticed after %v", parked, took)
		_ = cmd.Wait()
		text, err := os.ReadFile("/proc/net/unix")
		require.NoError(t, err)
		require.NotContains(t, string(text), l.addr.SHM)
	}
	left, err := os.ReadDir(tmp)
	require.NoError(t, err)
	require.Empty(t, left)
}

func BenchmarkSHMWireRoundTrip(b *testing.B) {
	for _, size := range []int{8, 1024, 32 << 10} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			e, l := pinnedSHMChild(b)
			got := 0
			e.onRecv = func(wire.Link, *wire.Header, []byte) bool { got++; return true }
			msg := make([]byte, size)
			h := wire.Header{Op: wire.OpSend, QPN: childEcho, Length: uint32(size), Total: uint64(size)}
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				for !l.Send(&h, msg, nil) {
					e.poll()
				}
				for got <= i {
					e.poll()
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/2, "ns/half")
		})
	}
}

func BenchmarkSHMWireStream(b *testing.B) {
	for _, size := range []int{8, 1024, 32 << 10, 64<<10 - 64} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			e, l := pinnedSHMChild(b)
			acked := false
			e.onRecv = func(wire.Link, *wire.Header, []byte) bool { acked = true; return true }
			msg := make([]byte, size)
			h := wire.Header{Op: wire.OpSend, QPN: childCount, Length: uint32(size), Total: uint64(size)}
			b.SetBytes(int64(size))
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				if i == b.N-1 {
					h.Flags = wire.FlagAckReq
				}
				for !l.Send(&h, msg, nil) {
					e.poll()
				}
			}
			for !acked {
				e.poll()
			}
		})
	}
}

func BenchmarkSHMRead(b *testing.B) {
	for _, size := range []int{8, 16 << 10, 64 << 10, 256 << 10} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			e, l := pinnedSHMChild(b)
			acked := false
			e.onRecv = func(wire.Link, *wire.Header, []byte) bool { acked = true; return true }
			buf := make([]byte, size)
			key, err := addRegion(e.table, buf, verbs.AccessRemoteRead)
			require.NoError(b, err)
			defer e.table.Remove(key)
			h := wire.Header{Op: wire.OpReadReq, QPN: childRead, Addr: mem.AddrOf(buf), RKey: key, Total: uint64(size)}
			b.SetBytes(int64(size))
			b.ResetTimer()
			for range b.N {
				acked = false
				l.Send(&h, nil, nil)
				for !acked {
					e.poll()
				}
			}
		})
	}
}

// BenchmarkSHMIdlePoll is what a poll costs that finds nothing, by the number of neighbours.
func BenchmarkSHMIdlePoll(b *testing.B) {
	for _, n := range []int{1, 8, 64} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			hub := newSHMEnd(b, 0)
			for i := range n {
				joinSHM(b, newSHMEnd(b, uint32(i+1)), hub)
			}
			b.ResetTimer()
			for range b.N {
				hub.w.Poll(16)
			}
		})
	}
}
