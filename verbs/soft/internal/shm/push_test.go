//go:build linux

package shm

import (
	"bytes"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/tagmatch/tagmatch/internal/memfd"
	"github.com/tagmatch/tagmatch/internal/shmring"
	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/mem"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/wire"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/wiretest"
)

// TestSHMWrite: memory is written with the owner's grant, and as long as it is not revoked.
func TestSHMWrite(t *testing.T) {
	a, b := newSHMEnd(t, 0), newSHMEnd(t, 1)
	l := joinSHM(t, a, b)
	require.True(t, l.CanPush())
	peerMem, ok := l.Memory().(wire.RemoteWriter)
	require.True(t, ok)
	theirs := b.linkTo(a)
	src, dst := bytes.Repeat([]byte("0123456789abcdef"), wire.MaxChunk/16), make([]byte, wire.MaxChunk)
	grant, ok := theirs.Grant()
	require.True(t, ok)
	require.Equal(t, verbs.WCSuccess, peerMem.Write(src, mem.AddrOf(dst), grant))
	require.Equal(t, src, dst)
	require.Zero(t, testing.AllocsPerRun(100, func() { peerMem.Write(src[:100], mem.AddrOf(dst)+16, grant) }))

	clear(dst)
	theirs.Revoke(grant)
	require.Equal(t, verbs.WCRemAccessErr, peerMem.Write(src, mem.AddrOf(dst), grant))
	theirs.Return(grant)
	theirs.RevokeAll()
	require.Equal(t, verbs.WCRemAccessErr, peerMem.Write(src, mem.AddrOf(dst), grant))
	require.Equal(t, make([]byte, wire.MaxChunk), dst)
	grant, ok = theirs.Grant()
	require.True(t, ok)
	require.Equal(t, verbs.WCSuccess, peerMem.Write(src, mem.AddrOf(dst), grant))
	require.Equal(t, src, dst)
	require.False(t, theirs.Busy())

	// Memory that is gone, at either end, says nothing about the kernel.
	hole, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ, unix.MAP_PRIVATE|unix.MAP_ANON)
	require.NoError(t, err)
	defer func() { require.NoError(t, unix.Munmap(hole)) }()
	require.Equal(t, verbs.WCRemAccessErr, peerMem.Write(src, mem.AddrOf(hole), grant))
	require.NoError(t, unix.Mprotect(hole, unix.PROT_NONE))
	require.Equal(t, verbs.WCRemAccessErr, peerMem.Write(hole, mem.AddrOf(dst), grant))

	l.CannotPush()
	require.False(t, l.CanPush())
}

// TestSHMReplaced: when nobody has looked at the peer for a while, a process that has got its
// number is neither written to nor read. This process plays that one.
func TestSHMReplaced(t *testing.T) {
	a, b := newSHMEnd(t, 0), newSHMEnd(t, 1)
	l := joinSHM(t, a, b)
	grant, ok := b.linkTo(a).Grant()
	require.True(t, ok)
	theirs, ours := make([]byte, 100), bytes.Repeat([]byte{7}, 100)
	key, err := addRegion(b.table, theirs, verbs.AccessRemoteRead)
	require.NoError(t, err)
	ended := exec.Command("true")
	require.NoError(t, ended.Start())
	pidfd, err := unix.PidfdOpen(ended.Process.Pid, 0)
	require.NoError(t, err)
	require.NoError(t, ended.Wait())

	a.w.watch.last, l.peer.pidfd, pidfd = wire.Monotonic()-int64(time.Minute), pidfd, l.peer.pidfd
	require.Equal(t, verbs.WCRetryExcErr, l.peer.Write(ours, mem.AddrOf(theirs), grant))
	require.Equal(t, verbs.WCRetryExcErr, l.peer.Read(ours, mem.AddrOf(theirs), key))
	require.Zero(t, l.peer.WriteMany([]wire.Piece{{Data: ours, Addr: mem.AddrOf(theirs), RKey: grant}}))
	require.Zero(t, l.peer.ReadMany([]wire.Piece{{Data: ours, Addr: mem.AddrOf(theirs), RKey: key}}))
	require.Equal(t, make([]byte, 100), theirs)
	require.Equal(t, bytes.Repeat([]byte{7}, 100), ours)

	l.peer.pidfd, pidfd = pidfd, l.peer.pidfd
	require.NoError(t, unix.Close(pidfd))
	require.Equal(t, verbs.WCSuccess, l.peer.Write(ours, mem.AddrOf(theirs), grant))
	require.Equal(t, ours, theirs)
	b.table.Remove(key)
}

// TestSHMMany: pieces are copied in their order, up to the first that is not allowed, or not there.
func TestSHMMany(t *testing.T) {
	a, b := newSHMEnd(t, 0), newSHMEnd(t, 1)
	l := joinSHM(t, a, b)
	peerMem, ok := l.Memory().(wire.RemotePieces)
	require.True(t, ok)
	const size = 100
	closed, err := unix.Mmap(-1, 0, 4096, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANON)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, unix.Munmap(closed)) })
	read := func(theirs [][]byte, i int, bad string) int {
		ps := pieces(theirs)
		for k := range ps {
			ps[k].RKey, err = addRegion(b.table, theirs[k], verbs.AccessRemoteRead)
			require.NoError(t, err)
		}
		if bad == "a right" {
			b.table.Remove(ps[i].RKey)
		}
		n := peerMem.ReadMany(ps)
		for k := range ps {
			want := byte(k + 1)
			if k >= n {
				want += 100 // nothing was read
			}
			require.Equal(t, bytes.Repeat([]byte{want}, size), ps[k].Data)
		}
		return n
	}
	write := func(theirs [][]byte, i int, bad string) int {
		ps := pieces(theirs)
		owner := b.linkTo(a)
		for k := range ps {
			ps[k].RKey, ok = owner.Grant()
			require.True(t, ok)
		}
		if bad == "a right" {
			owner.Revoke(ps[i].RKey)
		}
		n := peerMem.WriteMany(ps)
		owner.RevokeAll()
		for k := range n {
			require.Equal(t, bytes.Repeat([]byte{byte(k + 101)}, size), theirs[k])
		}
		return n
	}
	for name, move := range map[string]func([][]byte, int, string) int{"read": read, "write": write} {
		for _, bad := range []string{"nothing", "a right", "memory"} {
			for i := range wire.MaxPieces {
				var theirs [][]byte
				for k := range wire.MaxPieces {
					theirs = append(theirs, bytes.Repeat([]byte{byte(k + 1)}, size))
				}
				want := i
				switch bad {
				case "nothing":
					want = wire.MaxPieces
				case "memory":
					theirs[i] = closed[:size]
				}
				require.Equal(t, want, move(theirs, i, bad), "%s: %s is missing at piece %d", name, bad, i)
			}
		}
	}
}

// pieces returns a piece for each of the peer's buffers.
func pieces(theirs [][]byte) (ps []wire.Piece) {
	for k, b := range theirs {
		ps = append(ps, wire.Piece{Data: bytes.Repeat([]byte{byte(k + 101)}, len(b)), Addr: mem.AddrOf(b)})
	}
	return ps
}

// TestSHMRevoke: Revoke and RevokeAll tell whether the peer is in the middle of a chunk, and Writes
// when that has ended.
func TestSHMRevoke(t *testing.T) {
	a, b := newSHMEnd(t, 0), newSHMEnd(t, 1)
	l, theirs := joinSHM(t, a, b), b.linkTo(a)
	require.False(t, theirs.Writes(0))
	for i := range 100 {
		grant, ok := theirs.Grant()
		require.True(t, ok)
		revoke := func() uint32 {
			if i%2 == 0 {
				defer theirs.Return(grant)
				return theirs.Revoke(grant)
			}
			return theirs.RevokeAll()
		}
		if i%4 < 2 {
			require.Zero(t, revoke())
			continue
		}
		tx := l.peer.tx
		tx.SetBusy(true)
		chunk := revoke()
		require.True(t, theirs.Writes(chunk))
		tx.SetBusy(false)
		require.False(t, theirs.Writes(chunk))
		tx.SetBusy(true)
		require.False(t, theirs.Writes(chunk), "another chunk")
		tx.SetBusy(false)
	}
}

// childProducer is the child's end of the ring that l receives from.
func childProducer(t *testing.T, l *link) *shmring.Producer {
	t.Helper()
	shift := int(l.peer.slot) * stagger % memfd.PageRound(1)
	tx, err := shmring.NewProducer(l.peer.rxSeg.Mem[shift:][:shmring.Size(l.w.cfg.RingBytes)], nil)
	require.NoError(t, err)
	return tx
}

// TestSHMWritesLate: whether a peer has written its last byte is known after the end of the link,
// too; one that was killed writes no more.
func TestSHMWritesLate(t *testing.T) {
	e, l, child := startSHMChild(t)
	require.NoError(t, child.Process.Signal(syscall.SIGSTOP)) // it does not end with the link
	tx := childProducer(t, l)
	tx.SetBusy(true)
	chunk := l.RevokeAll()
	require.NotZero(t, chunk)
	l.Close()
	for range 10 {
		e.w.Poll(1)
		require.True(t, l.Writes(chunk))
	}
	tx.SetBusy(false)
	require.False(t, l.Writes(chunk))
	pollUntil(t, "the ring is unmapped", func() bool { return l.peer.rx == nil }, e)
	require.False(t, l.Writes(chunk))

	_, l, child = startSHMChild(t)
	childProducer(t, l).SetBusy(true)
	chunk = l.RevokeAll()
	require.True(t, l.Writes(chunk))
	require.NoError(t, child.Process.Signal(syscall.SIGKILL))
	wiretest.Within(t, "the end", func() {
		for l.Writes(chunk) {
			yield()
		}
	})
}
