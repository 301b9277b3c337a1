//go:build linux

package shm

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/tagmatch/tagmatch/internal/memfd"
	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/mem"
)

// sharedMemory is memory of n bytes that can be shared.
func sharedMemory(t *testing.T, n int) *memfd.Segment {
	s, err := memfd.New("tagmatch-test", n, memfd.Allocated|memfd.Populated)
	require.NoError(t, err)
	t.Cleanup(s.Close)
	for i := range s.Mem {
		s.Mem[i] = byte(i * 7)
	}
	return s
}

// noDirect is an end that may not read the memory of others by process_vm_readv.
func noDirect(e *shmEnd) { e.cfg.NoDirect = true }

// TestSHMShared: regions in shared memory are read although the kernel lets nobody read the memory
// of others; each is there until it is removed, and the memory cannot be taken back before.
func TestSHMShared(t *testing.T) {
	a, b := newSHMEnd(t, 0, noDirect), newSHMEnd(t, 1, noDirect)
	m := joinSHM(t, a, b).Memory()
	s := sharedMemory(t, 5*4096)
	share, err := b.table.Share(s.Mem, s.FD)
	require.NoError(t, err)
	part, dst := s.Mem[4000:9000], make([]byte, 5000)
	first, err := addRegion(b.table, part, verbs.AccessRemoteRead)
	require.NoError(t, err)
	second, err := addRegion(b.table, s.Mem[:1], verbs.AccessRemoteRead)
	require.NoError(t, err)
	outside, err := addRegion(b.table, make([]byte, 1), verbs.AccessRemoteRead)
	require.NoError(t, err)

	require.True(t, m.Reaches(first))
	require.True(t, m.Reaches(second))
	require.False(t, m.Reaches(outside))
	require.Equal(t, verbs.WCSuccess, m.Read(dst, mem.AddrOf(part), first))
	require.Equal(t, part, dst)
	require.Equal(t, verbs.WCRemAccessErr, m.Read(dst[:2], mem.AddrOf(s.Mem), second), "beyond the region")
	s.Mem[8999] = 1
	require.Equal(t, verbs.WCSuccess, m.Read(dst[:1], mem.AddrOf(part)+4999, first))
	require.Equal(t, byte(1), dst[0])
	require.Len(t, a.linkTo(b).peer.shared, 1)

	require.ErrorIs(t, share.Close(), unix.EBUSY)
	b.table.Remove(first)
	require.Equal(t, verbs.WCRemAccessErr, m.Read(dst, mem.AddrOf(part), first))
	require.ErrorIs(t, share.Close(), unix.EBUSY)
	b.table.Remove(second)
	require.NoError(t, share.Close())
	require.ErrorIs(t, share.Close(), unix.EINVAL)
	again, err := addRegion(b.table, part, verbs.AccessRemoteRead)
	require.NoError(t, err)
	require.False(t, m.Reaches(again), "not shared any more")
	s.Discard()
	require.Zero(t, allocated(t, s), "although the peer has it mapped")
}

// TestSHMSharedAgain: mappings of what is not shared any more go when another one is made.
func TestSHMSharedAgain(t *testing.T) {
	a, b := newSHMEnd(t, 0, noDirect), newSHMEnd(t, 1)
	l := joinSHM(t, a, b)
	for range 5 {
		s := sharedMemory(t, 4096)
		share, err := b.table.Share(s.Mem, s.FD)
		require.NoError(t, err)
		key, err := addRegion(b.table, s.Mem, verbs.AccessRemoteRead)
		require.NoError(t, err)
		dst := make([]byte, 4096)
		require.Equal(t, verbs.WCSuccess, l.Memory().Read(dst, mem.AddrOf(s.Mem), key))
		require.Equal(t, s.Mem, dst)
		require.Len(t, l.peer.shared, 1)
		b.table.Remove(key)
		require.NoError(t, share.Close())
	}
}

// TestSHMSharedHostile: what a peer says of its shared memory is checked before it is used.
func TestSHMSharedHostile(t *testing.T) {
	a, b := newSHMEnd(t, 0, noDirect), newSHMEnd(t, 1)
	l := joinSHM(t, a, b)
	plain, err := os.Create(filepath.Join(t.TempDir(), "plain"))
	require.NoError(t, err)
	defer func() { _ = plain.Close() }()
	require.NoError(t, plain.Truncate(8192))
	for name, fd := range map[string]int{
		"file":       int(plain.Fd()),
		"no fd":      -1,
		"unused fd":  1 << 20,
		"unsealed":   newMemfd(t, 8192, 0),
		"smaller":    newMemfd(t, 4096, memfd.Seals),
		"larger":     newMemfd(t, 12288, memfd.Seals),
		"no memory":  sparseMemfd(t, 8192),
		"no pages":   b.w.local.pipe.w,
		"own socket": l.peer.sock,
	} {
		t.Run(name, func(t *testing.T) {
			s := sharedMemory(t, 8192)
			share, err := b.table.Share(s.Mem, fd)
			require.NoError(t, err)
			key, err := addRegion(b.table, s.Mem, verbs.AccessRemoteRead)
			require.NoError(t, err)
			for range 2 {
				require.False(t, l.Memory().Reaches(key))
			}
			b.table.Remove(key)
			require.NoError(t, share.Close())
		})
	}
	t.Run("region beyond it", func(t *testing.T) {
		s := sharedMemory(t, 8192)
		share, err := b.table.Share(s.Mem[:4096], s.FD) // smaller than the memfd: not mapped
		require.NoError(t, err)
		require.NoError(t, share.Close())
		share, err = b.table.Share(s.Mem, s.FD)
		require.NoError(t, err)
		key, err := addRegion(b.table, s.Mem, verbs.AccessRemoteRead)
		require.NoError(t, err)
		slot := b.w.local.tableSeg.Mem[(key&mem.IndexMask)*mem.SlotBytes:]
		binary.NativeEndian.PutUint64(slot[16:], 1<<40) // its length
		require.Equal(t, verbs.WCSuccess, l.Memory().Read(make([]byte, 8), mem.AddrOf(s.Mem)+8184, key))
		require.Equal(t, verbs.WCRemOpErr, l.Memory().Read(make([]byte, 8), mem.AddrOf(s.Mem)+8185, key))
		require.Equal(t, verbs.WCRemOpErr, l.Memory().Read(make([]byte, 8), mem.AddrOf(s.Mem)+1<<39, key))
		b.table.Remove(key)
		require.NoError(t, share.Close())
	})
}

// sparseMemfd is a sealed memfd without pages.
func sparseMemfd(t *testing.T, n int64) int {
	fd, err := unix.MemfdCreate("sparse", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	require.NoError(t, err)
	t.Cleanup(func() { _ = unix.Close(fd) })
	require.NoError(t, unix.Ftruncate(fd, n))
	_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, memfd.Seals)
	require.NoError(t, err)
	return fd
}

// TestSHMSharedRemovedWhileRead: a read that succeeds has the bytes of a region that was registered
// throughout, and never the zeros of memory that was discarded.
func TestSHMSharedRemovedWhileRead(t *testing.T) {
	a, b := newSHMEnd(t, 0, noDirect), newSHMEnd(t, 1)
	m := joinSHM(t, a, b).Memory()
	dst := make([]byte, 64<<10)
	refused := 0
	for round := range 200 {
		s := sharedMemory(t, len(dst))
		share, err := b.table.Share(s.Mem, s.FD)
		require.NoError(t, err)
		key, err := addRegion(b.table, s.Mem, verbs.AccessRemoteRead)
		require.NoError(t, err)
		addr, want := mem.AddrOf(s.Mem), append([]byte(nil), s.Mem...)
		require.True(t, m.Reaches(key))
		var begun atomic.Bool
		done := make(chan error)
		go func() {
			for !begun.Load() {
			}
			for range round * 20 {
				_ = begun.Load()
			}
			b.table.Remove(key)
			err := share.Close()
			s.Discard()
			done <- err
		}()
		begun.Store(true)
		status := m.Read(dst, addr, key)
		require.NoError(t, <-done)
		if status == verbs.WCSuccess {
			require.Equal(t, want, dst, "round %d", round)
			continue
		}
		require.Contains(t, []verbs.WCStatus{verbs.WCRemAccessErr, verbs.WCRemOpErr}, status)
		refused++
	}
	t.Logf("%d reads refused", refused)
}
