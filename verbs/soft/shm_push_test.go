//go:build linux

package soft

import (
	"bytes"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/shmring"
	"github.com/tagmatch/tagmatch/verbs"
)

// TestSHMWrite: memory is written as the region table of its owner allows, and as long as it does.
func TestSHMWrite(t *testing.T) {
	a, b := newSHMEnd(t, 0), newSHMEnd(t, 1)
	l := joinSHM(t, a, b)
	require.True(t, l.canPush())
	mem, ok := l.memory().(remoteWriter)
	require.True(t, ok)
	src, dst := bytes.Repeat([]byte("0123456789abcdef"), maxChunk/16), make([]byte, maxChunk)
	key, err := b.table.add(dst, verbs.AccessRemoteWrite)
	require.NoError(t, err)
	require.Equal(t, verbs.WCSuccess, mem.write(src, addrOf(dst), key))
	require.Equal(t, src, dst)
	require.Zero(t, testing.AllocsPerRun(100, func() { mem.write(src[:100], addrOf(dst)+16, key) }))

	clear(dst)
	require.Equal(t, verbs.WCRemAccessErr, mem.write(src, addrOf(dst)+1, key))
	require.Equal(t, verbs.WCRemAccessErr, mem.write(src, addrOf(dst)-1, key))
	require.Equal(t, verbs.WCRemAccessErr, mem.write(src, addrOf(dst), key+1))
	b.table.remove(key)
	require.Equal(t, verbs.WCRemAccessErr, mem.write(src, addrOf(dst), key))
	key, err = b.table.add(dst, verbs.AccessRemoteRead|verbs.AccessLocalWrite)
	require.NoError(t, err)
	require.Equal(t, verbs.WCRemAccessErr, mem.write(src, addrOf(dst), key))
	b.table.remove(key)
	require.Equal(t, make([]byte, maxChunk), dst)
	require.False(t, l.peer.rx.Busy())

	l.cannotPush()
	require.False(t, l.canPush())
}

// TestSHMQuiet: a peer that was killed while it copied is not waited for.
func TestSHMQuiet(t *testing.T) {
	_, l, cmd := startSHMChild(t)
	l.quiet()
	shift := int(l.peer.slot) * stagger % pageRound(1)
	tx, err := shmring.NewProducer(l.peer.rxSeg.mem[shift:][:shmring.Size(defaultRingBytes)])
	require.NoError(t, err)
	tx.SetBusy(true)
	require.False(t, l.peer.ended())
	require.NoError(t, cmd.Process.Signal(syscall.SIGKILL))
	within(t, "quiet", l.quiet)
	within(t, "the end", func() {
		for !l.peer.ended() {
			yield()
		}
	})
}
