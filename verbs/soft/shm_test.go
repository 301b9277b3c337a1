//go:build linux

package soft

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
	"github.com/tagmatch/tagmatch/verbs"
)

// shmEnd is a wire with a receiver that records. A test drives all of its ends from one goroutine.
type shmEnd struct {
	w      *shmWire
	cfg    Config
	self   *address
	notif  *epollNotifier
	table  *regionTable
	onRecv func(l link, h *header, payload []byte) (ok, lent bool)
	got    []header
	data   [][]byte
	down   []error
}

func (e *shmEnd) receive(l link, h *header, payload []byte) (ok, lent bool) {
	if e.onRecv != nil {
		return e.onRecv(l, h, payload)
	}
	e.got, e.data = append(e.got, *h), append(e.data, bytes.Clone(payload))
	return true, false
}
func (e *shmEnd) linkDown(_ link, err error) { e.down = append(e.down, err) }
func (e *shmEnd) linkUp(link, *address)      {}
func (e *shmEnd) linkYielded(_ link, _ *address, err error) {
	e.down = append(e.down, err)
}
func (e *shmEnd) place(link, *header) []byte    { return nil }
func (e *shmEnd) poll() int                     { e.w.release(); return e.w.poll(16) }
func (e *shmEnd) linkTo(o *shmEnd) *shmLink     { l, _ := e.w.connect(o.self); return l.(*shmLink) }
func (e *shmEnd) send(o *shmEnd, h header) bool { return e.linkTo(o).send(&h, nil, nil) }

func newSHMEnd(t testing.TB, rank uint32, change ...func(*Config)) *shmEnd {
	e := &shmEnd{cfg: Config{Secret: []byte("secret"), Rank: int(rank), RingBytes: 8192}}
	for _, f := range change {
		f(&e.cfg)
	}
	var err error
	e.notif, err = newNotifier()
	require.NoError(t, err)
	e.self = &address{id: randomID(), rank: rank, pid: uint32(os.Getpid())}
	e.table = newRegionTable()
	w, err := newSHMWire(wireEnv{cfg: &e.cfg, self: e.self, rx: e, notif: e.notif, regions: e.table})
	require.NoError(t, err)
	e.w = w.(*shmWire)
	t.Cleanup(e.stop)
	return e
}

func (e *shmEnd) stop() {
	e.w.close()
	_ = e.notif.close()
}

// pollUntil polls all ends until f.
func pollUntil(t testing.TB, what string, f func() bool, ends ...*shmEnd) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !f(); {
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
func joinSHM(t testing.TB, a, b *shmEnd) *shmLink {
	t.Helper()
	pollUntil(t, "a connection", func() bool { return a.send(b, header{op: opAck, psn: 99}) }, a, b)
	pollUntil(t, "the first packet", func() bool { return len(b.got) > 0 }, a, b)
	b.got, b.data = nil, nil
	return a.linkTo(b)
}

func TestSHMHeaders(t *testing.T) {
	a, b := newSHMEnd(t, 0), newSHMEnd(t, 1)
	l := joinSHM(t, a, b)
	for _, h := range []header{
		{op: opSend, flags: 63, status: 7, length: 4, qpn: 1<<32 - 1, psn: 1<<32 - 2, total: 4},
		{op: opSend, length: 4, total: 0},
		{op: opSend, length: 4, total: 1 << 40, imm: 5},
		{op: opWrite, length: 4, total: 4, rkey: 1<<32 - 1, addr: 1<<64 - 1, imm: 1<<32 - 1},
		{op: opReadResp, length: 4, total: 4, addr: 1},
		{op: opNak, length: 4, status: 255},
	} {
		b.got, b.data = nil, nil
		require.True(t, l.send(&h, []byte("ab"), []byte("cd")))
		pollUntil(t, "the packet", func() bool { return len(b.got) > 0 }, b)
		require.Equal(t, []header{h}, b.got)
		require.Equal(t, "abcd", string(b.data[0]))
	}
}

// TestSHMRefused: a packet that is refused comes again, and nothing behind it before; lent payloads
// stay.
func TestSHMRefused(t *testing.T) {
	a, b := newSHMEnd(t, 0), newSHMEnd(t, 1)
	l := joinSHM(t, a, b)
	refuse, last := true, []byte(nil)
	b.onRecv = func(_ link, h *header, payload []byte) (bool, bool) {
		if h.psn == 2 && refuse {
			return false, false
		}
		b.got = append(b.got, *h)
		last = payload
		return true, true
	}
	big := bytes.Repeat([]byte("x"), l.maxPayload())
	require.True(t, l.send(&header{op: opSend, psn: 1, length: uint32(len(big)), total: uint64(len(big))}, big, nil))
	require.True(t, l.send(&header{op: opSend, psn: 2}, nil, nil))
	require.True(t, l.send(&header{op: opSend, psn: 3}, nil, nil))
	require.Equal(t, 1, b.w.poll(16))
	lent := last
	for l.send(&header{op: opSend, psn: 4, length: 100, total: 100}, big[:100], nil) {
	}
	require.Equal(t, big, lent, "the writer must not reach what is lent")
	refuse = false
	pollUntil(t, "the rest", func() bool { return len(b.got) > 3 }, b)
	for i := range uint32(4) {
		require.Equal(t, i+1, b.got[i].psn)
	}
}

// TestSHMManyNeighbours: more rings than the hot set holds; every message comes, in order, whoever
// sends.
func TestSHMManyNeighbours(t *testing.T) {
	const n = 14
	hub := newSHMEnd(t, 0)
	var ends []*shmEnd
	next := map[deviceID]uint32{}
	for i := range n {
		e := newSHMEnd(t, uint32(i+1))
		joinSHM(t, e, hub)
		ends = append(ends, e)
	}
	total := 0
	hub.onRecv = func(l link, h *header, _ []byte) (bool, bool) {
		id := l.(*shmLink).addr.id
		require.Equal(t, next[id], h.psn)
		next[id]++
		total++
		return true, false
	}
	sent := make([]uint32, n)
	want := 0
	for round := range 3000 {
		for i, e := range ends {
			if (round+i)%(i+1) == 0 && e.send(hub, header{op: opSend, psn: sent[i]}) {
				sent[i]++
				want++
			}
		}
		switch {
		case round%7 == 0: // sleeps now and then
			hub.w.arm()
			hub.poll()
			hub.w.disarm()
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
		e.w.arm()
		for e.poll() > 0 {
		}
		ended := make(chan error, 1)
		go func() { ended <- e.notif.wait() }()
		select {
		case <-ended: // spurious ones are allowed, but not for ever
			go func() { ended <- e.notif.wait() }()
		case <-time.After(5 * time.Millisecond):
		}
		f()
		within(t, "the wake", func() { require.NoError(t, <-ended) })
		e.w.disarm()
		e.poll()
	}
	for range 50 {
		woken(b, func() { require.True(t, l.send(&header{op: opSend}, nil, nil)) })
	}
	b.onRecv = func(link, *header, []byte) (bool, bool) { return true, false }
	for l.send(&header{op: opSend}, nil, nil) {
	}
	woken(a, func() { pollUntil(t, "room", func() bool { return b.poll() == 0 }) })
	require.True(t, l.send(&header{op: opSend}, nil, nil))
	woken(b, a.w.close)
	pollUntil(t, "the link's end", func() bool { return len(b.down) == 1 }, b)
	require.ErrorContains(t, b.down[0], "rank 0 (pid ")
	require.ErrorContains(t, b.down[0], "the peer has closed it")
}

// TestSHMLastWords: what a peer sent before it closed is received before the link goes down.
func TestSHMLastWords(t *testing.T) {
	a, b := newSHMEnd(t, 0), newSHMEnd(t, 1)
	l := joinSHM(t, a, b)
	for range 40 {
		require.True(t, l.send(&header{op: opSend}, nil, nil))
	}
	a.stop()
	pollUntil(t, "the end", func() bool { return len(b.down) > 0 }, b)
	require.Len(t, b.got, 40)
}

func TestSHMRead(t *testing.T) {
	a, b := newSHMEnd(t, 0), newSHMEnd(t, 1)
	l := joinSHM(t, a, b)
	mem := l.memory()
	require.NotNil(t, mem)
	require.True(t, l.peer.peerWrites)
	src, dst := bytes.Repeat([]byte("0123456789abcdef"), maxChunk/16), make([]byte, maxChunk)
	key, err := b.table.add(src, verbs.AccessRemoteRead)
	require.NoError(t, err)
	require.Equal(t, verbs.WCSuccess, mem.read(dst, addrOf(src), key))
	require.Equal(t, src, dst)
	require.Zero(t, testing.AllocsPerRun(100, func() { mem.read(dst[:100], addrOf(src)+16, key) }))
	require.Equal(t, verbs.WCSuccess, mem.read(nil, 0, 0))
	require.Equal(t, verbs.WCRemAccessErr, mem.read(dst, addrOf(src)+1, key), "beyond the region")
	require.Equal(t, verbs.WCRemAccessErr, mem.read(dst, addrOf(src), key+1))
	b.table.remove(key)
	require.Equal(t, verbs.WCRemAccessErr, mem.read(dst, addrOf(src), key), "withdrawn")
	key, err = b.table.add(src, verbs.AccessLocalWrite)
	require.NoError(t, err)
	require.Equal(t, verbs.WCRemAccessErr, mem.read(dst, addrOf(src), key), "not for reading")
	b.table.remove(key)

	// A region whose memory is not there.
	hole, err := unix.Mmap(-1, 0, os.Getpagesize(), unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANON)
	require.NoError(t, err)
	defer func() { _ = unix.Munmap(hole) }()
	key, err = b.table.add(hole, verbs.AccessRemoteRead)
	require.NoError(t, err)
	require.Equal(t, verbs.WCRemOpErr, mem.read(dst[:8], addrOf(hole), key), "not withdrawn")
	b.table.remove(key)

	key, err = b.table.add(src, verbs.AccessRemoteRead)
	require.NoError(t, err)
	require.Equal(t, verbs.WCRemOpErr, mem.read(hole[:8], addrOf(src), key), "the destination is not there")
	l.peer.pid = 1 << 30 // no such process
	require.Equal(t, verbs.WCRetryExcErr, mem.read(dst[:8], addrOf(src), key))
	b.table.remove(key)
}

// TestSHMReadWithdrawn: a read that succeeds has copied what the region held before it was
// withdrawn, whenever that is.
func TestSHMReadWithdrawn(t *testing.T) {
	a, b := newSHMEnd(t, 0), newSHMEnd(t, 1)
	mem := joinSHM(t, a, b).memory()
	before, dst := bytes.Repeat([]byte{1}, 4<<20), make([]byte, 4<<20)
	refused := 0
	for i := 0; i < 300 && refused < 10; i++ {
		src := bytes.Clone(before)
		clear(dst)
		key, err := b.table.add(src, verbs.AccessRemoteRead)
		require.NoError(t, err)
		done := make(chan struct{})
		go func() {
			defer close(done)
			for dst[0] == 0 { // the kernel copies from the first byte on
				yield()
			}
			b.table.remove(key)
			src[len(src)-1] = 2
		}()
		status := mem.read(dst, addrOf(src), key)
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
	a, b := newSHMEnd(t, 0, func(c *Config) { c.NoDirect = true }), newSHMEnd(t, 1)
	l := joinSHM(t, a, b)
	require.Nil(t, l.memory())
	require.NotNil(t, b.linkTo(a).memory())
}

// TestSHMHostileRing: garbage in a ring breaks that link, with an error that says so, and no other.
func TestSHMHostileRing(t *testing.T) {
	a, b, c := newSHMEnd(t, 0), newSHMEnd(t, 1), newSHMEnd(t, 2)
	l, other := joinSHM(t, a, b), joinSHM(t, c, b)
	for i := range l.peer.txSeg.mem {
		l.peer.txSeg.mem[i] = 0xa5
	}
	l.peer.signal()
	pollUntil(t, "the end", func() bool { return len(b.down) > 0 && len(a.down) > 0 }, a, b)
	require.ErrorContains(t, b.down[0], "bad packet word 0xa5a5a5a5a5a5a5a5")
	require.ErrorContains(t, b.down[0], "rank 0")
	require.ErrorContains(t, a.down[0], "protocol violation by this process")
	require.True(t, other.send(&header{op: opSend}, nil, nil))
	pollUntil(t, "a message", func() bool { return len(b.got) == 1 }, b, c)
	// An opcode that the ring does not know, but the wire.
	require.True(t, other.peer.tx.Push(77, 0, nil, nil, nil))
	other.peer.signal()
	pollUntil(t, "the end", func() bool { return len(b.down) == 2 }, b, c)
	require.ErrorContains(t, b.down[1], "unknown opcode 77")
}

func TestSHMReconnect(t *testing.T) {
	a, b := newSHMEnd(t, 0), newSHMEnd(t, 1)
	for range 3 {
		l := joinSHM(t, a, b)
		l.close()
		l.close()
		pollUntil(t, "the end", func() bool { return len(b.down) == 1 }, a, b)
		require.Empty(t, a.down, "who closes is not told")
		require.False(t, l.send(&header{op: opSend}, nil, nil))
		b.down = nil
	}
}

func TestSHMUnreachable(t *testing.T) {
	a, b := newSHMEnd(t, 0), newSHMEnd(t, 1)
	_, err := a.w.connect(&address{id: randomID(), host: b.self.host})
	require.ErrorContains(t, err, "no shared memory")
	_, err = a.w.connect(&address{id: randomID(), shm: b.self.shm})
	require.ErrorContains(t, err, "another host")
	b.stop()
	start := time.Now()
	a.send(b, header{op: opSend})
	pollUntil(t, "the end", func() bool { return len(a.down) == 1 }, a)
	require.ErrorContains(t, a.down[0], "rank 1")
	require.Less(t, time.Since(start), 5*time.Second, "a socket that refuses will not come back")
}

func TestSHMWrongSecretAndGarbage(t *testing.T) {
	a, b, c := newSHMEnd(t, 0), newSHMEnd(t, 1), newSHMEnd(t, 2, func(c *Config) { c.Secret = []byte("guess") })
	l := joinSHM(t, a, b)
	c.send(b, header{op: opSend})
	pollUntil(t, "the refusal", func() bool { return len(c.down) == 1 }, a, b, c)
	require.ErrorContains(t, c.down[0], "secret")
	for _, junk := range []string{"", "x", strings.Repeat("GET / HTTP/1.1\r\n", 100), shmMagic} {
		conn, err := net.Dial("unix", b.self.shm)
		require.NoError(t, err)
		_, _ = conn.Write([]byte(junk))
		require.NoError(t, conn.Close())
	}
	require.True(t, l.send(&header{op: opSend}, nil, nil))
	pollUntil(t, "a message", func() bool { return len(b.got) == 1 }, a, b)
	require.Empty(t, b.down)
}

func TestSHMRingSizesDiffer(t *testing.T) {
	a, b := newSHMEnd(t, 0), newSHMEnd(t, 1, func(c *Config) { c.RingBytes = 16384 })
	a.send(b, header{op: opSend})
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
		a.linkTo(b).close()
		pollUntil(t, "the end", func() bool { return len(b.down) == 1 }, a, b)
		joinSHM(t, b, a)
		c := newSHMEnd(t, 2, func(c *Config) { c.RingBytes = 4096 })
		c.send(a, header{op: opSend})
		pollUntil(t, "the refusal", func() bool { return len(c.down) == 1 }, a, c)
		_ = a.send(c, header{op: opSend}) // a dial under way
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
	for deadline := time.Now().Add(5 * time.Second); runtime.NumGoroutine() > goroutines && time.Now().Before(deadline); {
		runtime.Gosched()
	}
	require.LessOrEqual(t, runtime.NumGoroutine(), goroutines)
}

func TestSHMDoesNotAllocate(t *testing.T) {
	a, b := newSHMEnd(t, 0), newSHMEnd(t, 1)
	l := joinSHM(t, a, b)
	b.onRecv = func(link, *header, []byte) (bool, bool) { return true, true }
	h, buf := header{op: opSend, length: 40, total: 40}, make([]byte, 40)
	ext := header{op: opWrite, length: 40, total: 40, addr: 1, rkey: 2}
	n := testing.AllocsPerRun(2000, func() {
		l.send(&h, buf[:16], buf[16:])
		l.send(&ext, nil, buf)
		b.poll()
		b.w.arm()
		b.poll()
		b.w.disarm()
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
