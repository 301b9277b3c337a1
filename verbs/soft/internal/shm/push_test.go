//go:build linux

package shm

import (
	"bytes"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/tagmatch/tagmatch/internal/memfd"
	"github.com/tagmatch/tagmatch/internal/shmring"
	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/mem"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/wire"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/wiretest"
)

// TestSHMWrite: memory is written as the region table of its owner allows, and as long as it does.
func TestSHMWrite(t *testing.T) {
	a, b := newSHMEnd(t, 0), newSHMEnd(t, 1)
	l := joinSHM(t, a, b)
	require.True(t, l.CanPush())
	peerMem, ok := l.Memory().(wire.RemoteWriter)
	require.True(t, ok)
	src, dst := bytes.Repeat([]byte("0123456789abcdef"), wire.MaxChunk/16), make([]byte, wire.MaxChunk)
	key, err := addRegion(b.table, dst, verbs.AccessRemoteWrite)
	require.NoError(t, err)
	require.Equal(t, verbs.WCSuccess, peerMem.Write(src, mem.AddrOf(dst), key))
	require.Equal(t, src, dst)
	require.Zero(t, testing.AllocsPerRun(100, func() { peerMem.Write(src[:100], mem.AddrOf(dst)+16, key) }))

	clear(dst)
	require.Equal(t, verbs.WCRemAccessErr, peerMem.Write(src, mem.AddrOf(dst)+1, key))
	require.Equal(t, verbs.WCRemAccessErr, peerMem.Write(src, mem.AddrOf(dst)-1, key))
	require.Equal(t, verbs.WCRemAccessErr, peerMem.Write(src, mem.AddrOf(dst), key+1))
	b.table.Remove(key)
	require.Equal(t, verbs.WCRemAccessErr, peerMem.Write(src, mem.AddrOf(dst), key))
	key, err = addRegion(b.table, dst, verbs.AccessRemoteRead|verbs.AccessLocalWrite)
	require.NoError(t, err)
	require.Equal(t, verbs.WCRemAccessErr, peerMem.Write(src, mem.AddrOf(dst), key))
	b.table.Remove(key)
	require.Equal(t, make([]byte, wire.MaxChunk), dst)
	require.False(t, l.peer.rx.Busy())

	l.CannotPush()
	require.False(t, l.CanPush())
}

// TestSHMMany: pieces are copied in their order, up to the first that is not allowed, or not there.
func TestSHMMany(t *testing.T) {
	a, b := newSHMEnd(t, 0), newSHMEnd(t, 1)
	peerMem, ok := joinSHM(t, a, b).Memory().(wire.RemotePieces)
	require.True(t, ok)
	const size = 100
	closed, err := unix.Mmap(-1, 0, 4096, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANON)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, unix.Munmap(closed)) })
	for bad, lacks := range map[string]func(theirs [][]byte, keys []uint32, i int){
		"none":    func([][]byte, []uint32, int) {},
		"a right": func(_ [][]byte, keys []uint32, i int) { b.table.Remove(keys[i]) },
		"memory": func(theirs [][]byte, keys []uint32, i int) {
			theirs[i] = closed[:size]
			keys[i], err = addRegion(b.table, theirs[i], verbs.AccessRemoteRead|verbs.AccessRemoteWrite)
			require.NoError(t, err)
		},
	} {
		for i := range wire.MaxPieces {
			for name, move := range map[string]func([]wire.Piece) int{"read": peerMem.ReadMany, "write": peerMem.WriteMany} {
				var ps []wire.Piece
				var theirs [][]byte
				var keys []uint32
				for k := range wire.MaxPieces {
					theirs = append(theirs, bytes.Repeat([]byte{byte(k + 1)}, size))
					key, err := addRegion(b.table, theirs[k], verbs.AccessRemoteRead|verbs.AccessRemoteWrite)
					require.NoError(t, err)
					keys = append(keys, key)
				}
				lacks(theirs, keys, i)
				for k := range theirs {
					ps = append(ps, wire.Piece{Data: bytes.Repeat([]byte{byte(k + 101)}, size), Addr: mem.AddrOf(theirs[k]), RKey: keys[k]})
				}
				want := i
				if bad == "none" {
					want = wire.MaxPieces
				}
				require.Equal(t, want, move(ps), "%s: %s is missing in piece %d", name, bad, i)
				for k := range want {
					require.Equal(t, theirs[k], ps[k].Data)
					require.Equal(t, name == "write", ps[k].Data[0] > 100)
				}
			}
		}
	}
}

// TestSHMQuiet: a peer that was killed while it copied is not waited for.
func TestSHMQuiet(t *testing.T) {
	_, l, cmd := startSHMChild(t)
	l.Quiet()
	shift := int(l.peer.slot) * stagger % memfd.PageRound(1)
	tx, err := shmring.NewProducer(l.peer.rxSeg.Mem[shift:][:shmring.Size(l.w.cfg.RingBytes)])
	require.NoError(t, err)
	tx.SetBusy(true)
	require.False(t, l.peer.ended())
	require.NoError(t, cmd.Process.Signal(syscall.SIGKILL))
	wiretest.Within(t, "quiet", l.Quiet)
	wiretest.Within(t, "the end", func() {
		for !l.peer.ended() {
			yield()
		}
	})
}
