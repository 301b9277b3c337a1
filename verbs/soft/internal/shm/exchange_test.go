//go:build linux

package shm

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/tagmatch/tagmatch/internal/memfd"
	"github.com/tagmatch/tagmatch/internal/shmring"
	"github.com/tagmatch/tagmatch/internal/testlevel"
	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/mem"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/wire"
)

func unixPair(t *testing.T) (a, b *net.UnixConn) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	require.NoError(t, err)
	conn := func(fd int) *net.UnixConn {
		f := os.NewFile(uintptr(fd), "pair")
		defer func() { _ = f.Close() }()
		c, err := net.FileConn(f)
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close() })
		require.NoError(t, c.SetDeadline(time.Now().Add(testlevel.Patience(10*time.Second))))
		return c.(*net.UnixConn)
	}
	return conn(fds[0]), conn(fds[1])
}

func newMemfd(t *testing.T, size int64, seals int) int {
	fd, err := unix.MemfdCreate("tagmatch-test", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	require.NoError(t, err)
	t.Cleanup(func() { _ = unix.Close(fd) })
	require.NoError(t, unix.Fallocate(fd, 0, 0, size))
	_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals)
	require.NoError(t, err)
	return fd
}

// TestSHMHostileOffers: an authenticated peer that sends anything but what it should is refused, by
// name of the fault, and keeps nothing of ours.
func TestSHMHostileOffers(t *testing.T) {
	e := newSHMEnd(t, 0)
	ring := int64(memfd.PageRound(ringSegmentBytes(e.cfg.RingBytes)))
	good := offer{pid: e.self.PID, slot: 5, ringBytes: uint32(e.cfg.RingBytes), regions: mem.Slots, inbox: shmring.InboxBytes}
	sealed := newMemfd(t, ring, memfd.Seals)
	inbox, table, bell := e.w.local.inboxSeg.FD, e.w.local.tableSeg.FD, e.w.local.pipe.w
	plain, err := os.CreateTemp(t.TempDir(), "plain")
	require.NoError(t, err)
	require.NoError(t, plain.Truncate(ring))
	defer func() { _ = plain.Close() }()
	sparse, err := unix.MemfdCreate("tagmatch-test", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	require.NoError(t, err)
	defer func() { _ = unix.Close(sparse) }()
	require.NoError(t, unix.Ftruncate(sparse, int64(memfd.PageRound(shmring.InboxBytes))))
	_, err = unix.FcntlInt(uintptr(sparse), unix.F_ADD_SEALS, memfd.Seals)
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "pipe:[1]")
	require.NoError(t, unix.Mkfifo(path, 0o600))
	named, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC, 0)
	require.NoError(t, err)
	defer func() { _ = unix.Close(named) }()

	change := func(f func(*offer)) []byte { o := good; f(&o); return o.encode() }
	version := good.encode()
	version[6] = 9
	for name, c := range map[string]struct {
		offer []byte
		fds   []int
		want  string
	}{
		"unsealed":     {good.encode(), []int{newMemfd(t, ring, 0), inbox, table, bell}, "not sealed"},
		"half sealed":  {good.encode(), []int{newMemfd(t, ring, unix.F_SEAL_SHRINK|unix.F_SEAL_SEAL), inbox, table, bell}, "not sealed"},
		"too small":    {good.encode(), []int{newMemfd(t, ring-4096, memfd.Seals), inbox, table, bell}, "bytes, want"},
		"too large":    {good.encode(), []int{newMemfd(t, ring+4096, memfd.Seals), inbox, table, bell}, "bytes, want"},
		"sparse inbox": {good.encode(), []int{sealed, sparse, table, bell}, "inbox.*not allocated"},
		"plain file":   {good.encode(), []int{int(plain.Fd()), inbox, table, bell}, "memfd|sealed"},
		"inbox":        {good.encode(), []int{sealed, sealed, table, bell}, "inbox"},
		"table":        {good.encode(), []int{sealed, inbox, bell, bell}, "region table"},
		"short table":  {good.encode(), []int{sealed, inbox, sealed, bell}, "region table.*bytes, want"},
		"open table":   {good.encode(), []int{sealed, inbox, newMemfd(t, mem.Slots*mem.SlotBytes, 0), bell}, "region table.*not sealed"},
		"no pipe":      {good.encode(), []int{sealed, inbox, table, sealed}, "no pipe"},
		"named pipe":   {good.encode(), []int{sealed, inbox, table, named}, "no pipe"},
		"no fds":       {good.encode(), nil, "0 descriptors"},
		"too few fds":  {good.encode(), []int{sealed, inbox, table}, "3 descriptors"},
		"too many fds": {good.encode(), []int{sealed, inbox, table, bell, bell, bell, bell}, "descriptors"},
		"garbage":      {make([]byte, offerBytes), nil, "does not speak"},
		"short":        {good.encode()[:20], nil, "EOF"},
		"version":      {version, nil, "version 9"},
		"slot 0":       {change(func(o *offer) { o.slot = 0 }), nil, "slot 0"},
		"slot":         {change(func(o *offer) { o.slot = 1 << 20 }), nil, "slot"},
		"shift":        {change(func(o *offer) { o.shift = 1 << 20 }), nil, "starts at"},
		"odd shift":    {change(func(o *offer) { o.shift = 8 }), nil, "starts at"},
		"ring size":    {change(func(o *offer) { o.ringBytes = 1 << 30 }), nil, "run the same build"},
		"regions":      {change(func(o *offer) { o.regions = 1 }), nil, "have other sizes"},
	} {
		t.Run(name, func(t *testing.T) {
			ours, theirs := unixPair(t)
			before := len(fdList(t))
			go func() {
				_, _, _ = theirs.WriteMsgUnix(c.offer, unix.UnixRights(c.fds...), nil)
				_ = theirs.CloseWrite()
			}()
			err := e.exchange(ours, &wire.Address{PID: e.self.PID, Rank: 1})
			require.Error(t, err)
			require.Regexp(t, c.want, err.Error())
			require.Equal(t, name != "short" && name != "too many fds", errors.Is(err, verbs.ErrProtocol), err)
			runtime.KeepAlive(plain)
			_ = theirs.Close() // with the descriptors that we sent
			require.LessOrEqual(t, len(fdList(t)), before)
		})
	}
}

// exchange is what the connector has a wire do with a connection.
func (e *shmEnd) exchange(conn net.Conn, peer *wire.Address) error {
	p, err := e.w.prepare(conn, peer)
	if err == nil {
		_, err = e.w.upgrade(conn, p)
	}
	return err
}

func fdList(t *testing.T) []os.DirEntry {
	list, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return list
}

func TestSHMIdentity(t *testing.T) {
	e := newSHMEnd(t, 0)
	ours, _ := unixPair(t)
	err := e.exchange(ours, &wire.Address{PID: 1})
	require.ErrorContains(t, err, "the peer says that it is process 1, the kernel says")
	a, b := net.Pipe()
	defer func() { _, _ = a.Close(), b.Close() }()
	err = e.exchange(a, e.self)
	require.ErrorContains(t, err, "no Unix socket")
}

// TestSHMSealed: what we hand out cannot be shrunk, and the region table cannot be written.
func TestSHMSealed(t *testing.T) {
	e := newSHMEnd(t, 0)
	for _, s := range []*memfd.Segment{e.w.local.inboxSeg, e.w.local.tableSeg} {
		require.Error(t, unix.Ftruncate(s.FD, 0))
		require.Error(t, unix.Ftruncate(s.FD, 1<<20))
	}
	_, err := unix.Mmap(e.w.local.tableSeg.FD, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	require.Error(t, err)
}

func FuzzSHMOffer(f *testing.F) {
	o := offer{slot: 1, ringBytes: 8192, regions: mem.Slots, inbox: shmring.InboxBytes}
	f.Add(o.encode())
	f.Add(make([]byte, offerBytes))
	f.Fuzz(func(t *testing.T, b []byte) {
		if o, err := decodeOffer(b, 8192); err == nil && (o.slot == 0 || o.slot >= shmring.Slots || o.shift >= 65536) {
			t.Fatalf("accepted %+v", o)
		}
	})
}
