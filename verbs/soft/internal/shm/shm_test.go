//go:build linux

package shm

import (
	"bytes"
	"net"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/tagmatch/tagmatch/internal/invariant"
	"github.com/tagmatch/tagmatch/internal/testlevel"
	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/mem"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/notify"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/wire"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/wiretest"
)

// shmEnd is a wire with a receiver that records. A test drives all of its ends from one goroutine.
type shmEnd struct {
	w      *Wire
	env    wire.Env
	cfg    Config
	self   *wire.Address
	notif  *notify.Epoll
	table  *mem.Table
	onRecv func(l wire.Link, h *wire.Header, payload []byte) bool
	got    []wire.Header
	data   [][]byte
	down   []error
}

func (e *shmEnd) Receive(l wire.Link, h *wire.Header, payload []byte) (ok, more bool) {
	if e.onRecv != nil {
		return e.onRecv(l, h, payload), true
	}
	e.got, e.data = append(e.got, *h), append(e.data, bytes.Clone(payload))
	return true, true
}
func (e *shmEnd) LinkDown(_ wire.Link, err error) { e.down = append(e.down, err) }
func (e *shmEnd) LinkUp(wire.Link, *wire.Address) {}
func (e *shmEnd) LinkYielded(_ wire.Link, _ *wire.Address, err error) {
	e.down = append(e.down, err)
}
func (e *shmEnd) Place(wire.Link, *wire.Header) []byte { return nil }
func (e *shmEnd) PlaceGone(wire.Link, *wire.Header)    {}
func (e *shmEnd) poll() int                            { return e.w.Poll(16) }
func (e *shmEnd) linkTo(o *shmEnd) *link               { l, _ := e.w.Connect(o.self); return l.(*link) }
func (e *shmEnd) send(o *shmEnd, h wire.Header) bool   { return e.linkTo(o).Send(&h, nil, nil) }

func newSHMEnd(t testing.TB, rank uint32, change ...func(*shmEnd)) *shmEnd {
	n, err := notify.NewEpoll()
	require.NoError(t, err)
	e := &shmEnd{notif: n, table: mem.NewTable(), self: &wire.Address{ID: wire.NewDeviceID(), Rank: rank, PID: uint32(os.Getpid())}}
	e.env = wire.Env{Self: e.self, Receiver: e, Notifier: n, Secret: []byte("secret"), PeerTimeout: 20 * time.Second}
	e.cfg = Config{RingBytes: 8192, Regions: e.table}
	for _, f := range change {
		f(e)
	}
	w, err := Open(e.env, e.cfg)
	require.NoError(t, err)
	e.w = w.(*Wire)
	t.Cleanup(e.stop)
	return e
}

func (e *shmEnd) stop() {
	e.w.Close()
	_ = e.notif.Close()
}

// pollUntil polls all ends until f.
func pollUntil(t testing.TB, what string, f func() bool, ends ...*shmEnd) {
	t.Helper()
	for deadline := time.Now().Add(testlevel.Patience(20 * time.Second)); !f(); {
		for _, e := range ends {
			e.poll()
		}
		runtime.Gosched()
		yield()
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

// joinSHM connects a to b.
func joinSHM(t testing.TB, a, b *shmEnd) *link {
	t.Helper()
	pollUntil(t, "a connection", func() bool { return a.send(b, wire.Header{Op: wire.OpAck, PSN: 99}) }, a, b)
	pollUntil(t, "the first packet", func() bool { return len(b.got) > 0 }, a, b)
	b.got, b.data = nil, nil
	return a.linkTo(b)
}

// TestSHMAgain: a link that was closed is followed by another, also where that sends before a poll.
func TestSHMAgain(t *testing.T) {
	a, b := newSHMEnd(t, 0), newSHMEnd(t, 1)
	for range 3 {
		l := joinSHM(t, a, b)
		l.Close()
		require.False(t, a.send(b, wire.Header{Op: wire.OpAck}), "it is not connected yet")
		require.NotSame(t, l, a.linkTo(b))
	}
	joinSHM(t, a, b)
}

func TestSHMHeaders(t *testing.T) {
	a, b := newSHMEnd(t, 0), newSHMEnd(t, 1)
	l := joinSHM(t, a, b)
	for _, h := range []wire.Header{
		{Op: wire.OpSend, Flags: 63, Status: 7, Length: 4, QPN: 1<<32 - 1, PSN: 1<<32 - 2, Total: 4},
		{Op: wire.OpSend, Length: 4, Total: 0},
		{Op: wire.OpSend, Length: 4, Total: 1 << 40, Imm: 5},
		{Op: wire.OpWrite, Length: 4, Total: 4, RKey: 1<<32 - 1, Addr: 1<<64 - 1, Imm: 1<<32 - 1},
		{Op: wire.OpReadResp, Length: 4, Total: 4, Addr: 1},
		{Op: wire.OpNak, Length: 4, Status: 255},
	} {
		b.got, b.data = nil, nil
		require.True(t, l.Send(&h, []byte("ab"), []byte("cd")))
		pollUntil(t, "the packet", func() bool { return len(b.got) > 0 }, b)
		require.Equal(t, []wire.Header{h}, b.got)
		require.Equal(t, "abcd", string(b.data[0]))
	}
}

// TestSHMRefused: a packet that is refused comes again, and nothing behind it before.
func TestSHMRefused(t *testing.T) {
	a, b := newSHMEnd(t, 0), newSHMEnd(t, 1)
	l := joinSHM(t, a, b)
	refuse := true
	b.onRecv = func(_ wire.Link, h *wire.Header, payload []byte) bool {
		if h.PSN == 2 && refuse {
			return false
		}
		b.got = append(b.got, *h)
		return true
	}
	big := bytes.Repeat([]byte("x"), l.MaxPayload())
	require.True(t, l.Send(&wire.Header{Op: wire.OpSend, PSN: 1, Length: uint32(len(big)), Total: uint64(len(big))}, big, nil))
	require.True(t, l.Send(&wire.Header{Op: wire.OpSend, PSN: 2}, nil, nil))
	require.True(t, l.Send(&wire.Header{Op: wire.OpSend, PSN: 3}, nil, nil))
	require.Equal(t, 1, b.w.Poll(16))
	for l.Send(&wire.Header{Op: wire.OpSend, PSN: 4, Length: 100, Total: 100}, big[:100], nil) {
	}
	refuse = false
	pollUntil(t, "the rest", func() bool { return len(b.got) > 3 }, b)
	for i := range uint32(4) {
		require.Equal(t, i+1, b.got[i].PSN)
	}
}

// TestSHMManyNeighbours: more rings than the hot set holds; every message comes, in order, whoever
// sends.
func TestSHMManyNeighbours(t *testing.T) {
	const n = 14
	hub := newSHMEnd(t, 0)
	var ends []*shmEnd
	next := map[wire.DeviceID]uint32{}
	for i := range n {
		e := newSHMEnd(t, uint32(i+1))
		joinSHM(t, e, hub)
		ends = append(ends, e)
	}
	total := 0
	hub.onRecv = func(l wire.Link, h *wire.Header, _ []byte) bool {
		id := l.(*link).addr.ID
		require.Equal(t, next[id], h.PSN)
		next[id]++
		total++
		return true
	}
	sent := make([]uint32, n)
	want := 0
	for round := range 3000 {
		for i, e := range ends {
			if (round+i)%(i+1) == 0 && e.send(hub, wire.Header{Op: wire.OpSend, PSN: sent[i]}) {
				sent[i]++
				want++
			}
		}
		switch {
		case round%7 == 0: // sleeps now and then
			hub.w.Arm(true)
			hub.poll()
			hub.w.Disarm()
		case round%3 == 0:
			hub.poll()
		}
	}
	pollUntil(t, "all messages", func() bool { return total == want }, hub)
	require.LessOrEqual(t, len(hub.w.hot), maxHot)
}

// TestSHMWake: a device that armed is woken by a packet, by room, and by a link that breaks.
func TestSHMWake(t *testing.T) {
	a, b := newSHMEnd(t, 0), newSHMEnd(t, 1)
	l := joinSHM(t, a, b)
	woken := func(e *shmEnd, f func()) {
		t.Helper()
		e.w.Arm(true)
		for e.poll() > 0 {
		}
		ended := make(chan error, 1)
		go func() { ended <- e.notif.Wait() }()
		select {
		case <-ended: // spurious ones are allowed, but not for ever
			go func() { ended <- e.notif.Wait() }()
		case <-time.After(5 * time.Millisecond):
		}
		f()
		wiretest.Within(t, "the wake", func() { require.NoError(t, <-ended) })
		e.w.Disarm()
		e.poll()
	}
	for range 50 {
		woken(b, func() { require.True(t, l.Send(&wire.Header{Op: wire.OpSend}, nil, nil)) })
		woken(b, func() {
			require.True(t, l.Hold(&wire.Header{Op: wire.OpSend}, nil, nil))
			require.False(t, l.Hold(&wire.Header{Op: wire.OpSend, Flags: wire.FlagSolicited}, nil, nil), "urgent")
			l.Publish()
		})
	}
	b.onRecv = func(wire.Link, *wire.Header, []byte) bool { return true }
	for l.Send(&wire.Header{Op: wire.OpSend}, nil, nil) {
	}
	woken(a, func() { pollUntil(t, "room", func() bool { return b.poll() == 0 }) })
	require.True(t, l.Send(&wire.Header{Op: wire.OpSend}, nil, nil))
	woken(b, a.w.Close)
	pollUntil(t, "the link's end", func() bool { return len(b.down) == 1 }, b)
	require.ErrorContains(t, b.down[0], "rank 0 (pid ")
	require.ErrorContains(t, b.down[0], "the peer has closed it")
}

// TestSHMLastWords: what a peer sent before it closed is received before the link goes down.
func TestSHMLastWords(t *testing.T) {
	a, b := newSHMEnd(t, 0), newSHMEnd(t, 1)
	l := joinSHM(t, a, b)
	for range 40 {
		require.True(t, l.Send(&wire.Header{Op: wire.OpSend}, nil, nil))
	}
	a.stop()
	pollUntil(t, "the end", func() bool { return len(b.down) > 0 }, b)
	require.Len(t, b.got, 40)
}

func TestSHMRead(t *testing.T) {
	a, b := newSHMEnd(t, 0), newSHMEnd(t, 1)
	l := joinSHM(t, a, b)
	peerMem := l.Memory()
	require.NotNil(t, peerMem)
	require.True(t, l.peer.peerWrites)
	src, dst := bytes.Repeat([]byte("0123456789abcdef"), wire.MaxChunk/16), make([]byte, wire.MaxChunk)
	key, err := addRegion(b.table, src, verbs.AccessRemoteRead)
	require.NoError(t, err)
	require.Equal(t, verbs.WCSuccess, peerMem.Read(dst, mem.AddrOf(src), key))
	require.Equal(t, src, dst)
	require.Zero(t, testing.AllocsPerRun(100, func() { peerMem.Read(dst[:100], mem.AddrOf(src)+16, key) }))
	require.Equal(t, verbs.WCSuccess, peerMem.Read(nil, 0, 0))
	require.Equal(t, verbs.WCRemAccessErr, peerMem.Read(dst, mem.AddrOf(src)+1, key), "beyond the region")
	require.Equal(t, verbs.WCRemAccessErr, peerMem.Read(dst, mem.AddrOf(src), key+1))
	b.table.Remove(key)
	require.Equal(t, verbs.WCRemAccessErr, peerMem.Read(dst, mem.AddrOf(src), key), "deregistered")
	key, err = addRegion(b.table, src, verbs.AccessLocalWrite)
	require.NoError(t, err)
	require.Equal(t, verbs.WCRemAccessErr, peerMem.Read(dst, mem.AddrOf(src), key), "not for reading")
	b.table.Remove(key)

	// A region whose memory is not there.
	hole, err := unix.Mmap(-1, 0, os.Getpagesize(), unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANON)
	require.NoError(t, err)
	defer func() { _ = unix.Munmap(hole) }()
	key, err = addRegion(b.table, hole, verbs.AccessRemoteRead)
	require.NoError(t, err)
	require.Equal(t, verbs.WCRemOpErr, peerMem.Read(dst[:8], mem.AddrOf(hole), key), "not deregistered")
	b.table.Remove(key)

	key, err = addRegion(b.table, src, verbs.AccessRemoteRead)
	require.NoError(t, err)
	require.Equal(t, verbs.WCLocAccessErr, peerMem.Read(hole[:8], mem.AddrOf(src), key), "the destination is not there")
	require.NoError(t, unix.Mprotect(hole, unix.PROT_READ))
	require.Equal(t, verbs.WCLocAccessErr, peerMem.Read(hole[:8], mem.AddrOf(src), key), "nor to be written")
	l.peer.pid = 1 << 30 // no such process
	require.Equal(t, verbs.WCRetryExcErr, peerMem.Read(dst[:8], mem.AddrOf(src), key))
	b.table.Remove(key)
}

// TestSHMReadDeregistered: a read that succeeds has copied what the region held before it was
// deregistered, whenever that is.
func TestSHMReadDeregistered(t *testing.T) {
	a, b := newSHMEnd(t, 0), newSHMEnd(t, 1)
	peerMem := joinSHM(t, a, b).Memory()
	// The copy takes longer than a time slice: so the region goes amid it on a busy machine, too.
	before, dst := bytes.Repeat([]byte{1}, 32<<20), make([]byte, 32<<20)
	refused := 0
	for i := 0; i < 60 && refused < 10; i++ {
		src := bytes.Clone(before)
		clear(dst)
		key, err := addRegion(b.table, src, verbs.AccessRemoteRead)
		require.NoError(t, err)
		done := make(chan struct{})
		go func() {
			defer close(done)
			for dst[0] == 0 { // the kernel copies from the first byte on
				yield()
			}
			b.table.Remove(key)
			src[len(src)-1] = 2
		}()
		status := peerMem.Read(dst, mem.AddrOf(src), key)
		<-done
		if status == verbs.WCSuccess {
			require.True(t, bytes.Equal(before, dst), "round %d", i)
			continue
		}
		require.Equal(t, verbs.WCRemAccessErr, status)
		refused++
	}
	t.Logf("%d reads refused", refused)
}

func TestSHMNoDirect(t *testing.T) {
	a, b := newSHMEnd(t, 0, func(e *shmEnd) { e.cfg.NoDirect = true }), newSHMEnd(t, 1)
	l := joinSHM(t, a, b)
	src := make([]byte, 8)
	key, err := addRegion(b.table, src, verbs.AccessRemoteRead)
	require.NoError(t, err)
	require.False(t, l.Memory().Reaches(key))
	require.Equal(t, verbs.WCRemOpErr, l.Memory().Read(make([]byte, 8), mem.AddrOf(src), key))
	require.True(t, b.linkTo(a).Memory().Reaches(key))
}

// TestSHMHostileRing: garbage in a ring breaks that link, with an error that says so, and no other.
func TestSHMHostileRing(t *testing.T) {
	a, b, c := newSHMEnd(t, 0), newSHMEnd(t, 1), newSHMEnd(t, 2)
	l, other := joinSHM(t, a, b), joinSHM(t, c, b)
	for i := range l.peer.txSeg.Mem {
		l.peer.txSeg.Mem[i] = 0xa5
	}
	l.peer.signal(true)
	pollUntil(t, "the end", func() bool { return len(b.down) > 0 && len(a.down) > 0 }, a, b)
	require.ErrorContains(t, b.down[0], "bad packet word 0xa5a5a5a5a5a5a5a5")
	require.ErrorContains(t, b.down[0], "rank 0")
	require.ErrorIs(t, b.down[0], verbs.ErrProtocol)
	require.ErrorIs(t, a.down[0], verbs.ErrAccused)
	require.True(t, other.Send(&wire.Header{Op: wire.OpSend}, nil, nil))
	pollUntil(t, "a message", func() bool { return len(b.got) == 1 }, b, c)
	// An opcode that the ring does not know, but the wire.
	require.True(t, other.peer.tx.Push(77, 0, nil, nil, nil))
	other.peer.signal(true)
	pollUntil(t, "the end", func() bool { return len(b.down) == 2 }, b, c)
	require.ErrorContains(t, b.down[1], "unknown opcode 77")
	require.ErrorIs(t, b.down[1], verbs.ErrProtocol)
}

func TestSHMReconnect(t *testing.T) {
	a, b := newSHMEnd(t, 0), newSHMEnd(t, 1)
	for range 3 {
		l := joinSHM(t, a, b)
		l.Close()
		l.Close()
		pollUntil(t, "the end", func() bool { return len(b.down) == 1 }, a, b)
		require.Empty(t, a.down, "who closes is not told")
		require.False(t, l.Send(&wire.Header{Op: wire.OpSend}, nil, nil))
		b.down = nil
	}
}

func TestSHMUnreachable(t *testing.T) {
	a, b := newSHMEnd(t, 0), newSHMEnd(t, 1)
	_, err := a.w.Connect(&wire.Address{ID: wire.NewDeviceID(), Host: b.self.Host})
	require.ErrorContains(t, err, "no shared memory")
	_, err = a.w.Connect(&wire.Address{ID: wire.NewDeviceID(), SHM: b.self.SHM})
	require.ErrorContains(t, err, "another host")
	b.stop()
	start := time.Now()
	a.send(b, wire.Header{Op: wire.OpSend})
	pollUntil(t, "the end", func() bool { return len(a.down) == 1 }, a)
	require.ErrorContains(t, a.down[0], "rank 1")
	require.Less(t, time.Since(start), 5*time.Second, "a socket that refuses will not come back")
}

func TestSHMWrongSecretAndGarbage(t *testing.T) {
	a, b, c := newSHMEnd(t, 0), newSHMEnd(t, 1), newSHMEnd(t, 2, func(e *shmEnd) { e.env.Secret = []byte("guess") })
	l := joinSHM(t, a, b)
	c.send(b, wire.Header{Op: wire.OpSend})
	pollUntil(t, "the refusal", func() bool { return len(c.down) == 1 }, a, b, c)
	require.ErrorContains(t, c.down[0], "secret")
	for _, junk := range []string{"", "x", strings.Repeat("GET / HTTP/1.1\r\n", 100), magic} {
		conn, err := net.Dial("unix", b.self.SHM)
		require.NoError(t, err)
		_, _ = conn.Write([]byte(junk))
		require.NoError(t, conn.Close())
	}
	require.True(t, l.Send(&wire.Header{Op: wire.OpSend}, nil, nil))
	pollUntil(t, "a message", func() bool { return len(b.got) == 1 }, a, b)
	require.Empty(t, b.down)
}

func TestSHMRingSizesDiffer(t *testing.T) {
	a, b := newSHMEnd(t, 0), newSHMEnd(t, 1, func(e *shmEnd) { e.cfg.RingBytes = 16384 })
	a.send(b, wire.Header{Op: wire.OpSend})
	pollUntil(t, "the refusal", func() bool { return len(a.down) == 1 }, a, b)
	require.Regexp(t, "RingBytes|exchange", a.down[0].Error())
	require.Empty(t, b.down)
}

// TestSHMLeavesNothing: after close there are as many descriptors, mappings and goroutines as
// before.
func TestSHMLeavesNothing(t *testing.T) {
	count := func() (fds, maps int) {
		list, err := os.ReadDir("/proc/self/fd")
		require.NoError(t, err)
		text, err := os.ReadFile("/proc/self/maps")
		require.NoError(t, err)
		return len(list), strings.Count(string(text), "memfd:tagmatch")
	}
	round := func() {
		a, b := newSHMEnd(t, 0), newSHMEnd(t, 1)
		joinSHM(t, a, b)
		a.linkTo(b).Close()
		pollUntil(t, "the end", func() bool { return len(b.down) == 1 }, a, b)
		joinSHM(t, b, a)
		c := newSHMEnd(t, 2, func(e *shmEnd) { e.cfg.RingBytes = 4096 })
		c.send(a, wire.Header{Op: wire.OpSend})
		pollUntil(t, "the refusal", func() bool { return len(c.down) == 1 }, a, c)
		_ = a.send(c, wire.Header{Op: wire.OpSend}) // a dial under way
		a.stop()
		b.stop()
		c.stop()
	}
	round()
	fds, maps := count()
	goroutines := runtime.NumGoroutine()
	for range 5 {
		round()
	}
	fds2, maps2 := count()
	require.LessOrEqual(t, fds2, fds)
	require.Equal(t, maps, maps2)
	require.Zero(t, maps2)
	for deadline := time.Now().Add(testlevel.Patience(5 * time.Second)); runtime.NumGoroutine() > goroutines && time.Now().Before(deadline); {
		runtime.Gosched()
	}
	require.LessOrEqual(t, runtime.NumGoroutine(), goroutines)
}

func TestSHMDoesNotAllocate(t *testing.T) {
	a, b := newSHMEnd(t, 0), newSHMEnd(t, 1)
	l := joinSHM(t, a, b)
	b.onRecv = func(wire.Link, *wire.Header, []byte) bool { return true }
	h, buf := wire.Header{Op: wire.OpSend, Length: 40, Total: 40}, make([]byte, 40)
	ext := wire.Header{Op: wire.OpWrite, Length: 40, Total: 40, Addr: 1, RKey: 2}
	n := testing.AllocsPerRun(2000, func() {
		l.Send(&h, buf[:16], buf[16:])
		l.Send(&ext, nil, buf)
		b.poll()
		b.w.Arm(true)
		b.poll()
		b.w.Disarm()
	})
	if !invariant.Enabled {
		require.Zero(t, n)
	}
}

func TestSlotSet(t *testing.T) {
	var s slotSet
	seen := map[uint32]bool{}
	for range len(s)*64 - 1 {
		slot, err := s.get()
		require.NoError(t, err)
		require.False(t, seen[slot])
		seen[slot] = true
	}
	require.False(t, seen[eventSlot])
	_, err := s.get()
	require.ErrorIs(t, err, errSlots)
	s.put(777)
	slot, err := s.get()
	require.NoError(t, err)
	require.Equal(t, uint32(777), slot)
}
