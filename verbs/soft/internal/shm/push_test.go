//go:build linux

package shm

import (
	"bytes"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

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
