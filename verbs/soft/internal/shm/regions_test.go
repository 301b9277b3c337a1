//go:build linux

package shm

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/tagmatch/tagmatch/internal/memfd"
	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/mem"
)

// allocated is how many bytes of a segment have memory.
func allocated(t *testing.T, s *memfd.Segment) int {
	var st unix.Stat_t
	require.NoError(t, unix.Fstat(s.FD, &st))
	return int(st.Blocks) * 512
}

// TestSHMTableGrows: a peer that mapped the region table when it was small reads by keys of what it
// has become; memory is there for the slots in use and no others.
func TestSHMTableGrows(t *testing.T) {
	a, b := newSHMEnd(t, 0), newSHMEnd(t, 1)
	l := joinSHM(t, a, b)
	src, dst := bytes.Repeat([]byte("x"), 100), make([]byte, 100)
	seg := b.w.local.tableSeg
	require.Equal(t, mem.PieceBytes, allocated(t, seg))
	first, err := addRegion(b.table, src, verbs.AccessRemoteRead)
	require.NoError(t, err)
	require.Equal(t, verbs.WCSuccess, l.Memory().Read(dst, mem.AddrOf(src), first))

	const n = 5*mem.PieceSlots + 1
	keys := []uint32{first}
	for len(keys) < n {
		key, err := addRegion(b.table, src, verbs.AccessRemoteRead)
		require.NoError(t, err)
		keys = append(keys, key)
	}
	require.Equal(t, 6*mem.PieceBytes, allocated(t, seg))
	for _, key := range keys {
		clear(dst)
		require.Equal(t, verbs.WCSuccess, l.Memory().Read(dst, mem.AddrOf(src), key))
		require.Equal(t, src, dst)
	}
	for _, key := range keys {
		b.table.Remove(key)
		require.Equal(t, verbs.WCRemAccessErr, l.Memory().Read(dst, mem.AddrOf(src), key))
	}
	require.Equal(t, 6*mem.PieceBytes, allocated(t, seg))
	require.Equal(t, verbs.WCRemAccessErr, l.Memory().Read(dst, mem.AddrOf(src), 1<<mem.IndexBits|mem.IndexMask), "nobody's slot")
}

// TestSHMTableGap: a key whose slot lies where a peer has no memory is refused; it is no fault of
// this process.
func TestSHMTableGap(t *testing.T) {
	fd := newMemfd(t, mem.PieceBytes+4096, memfd.Seals)
	peerMem, err := unix.Mmap(fd, 0, 2*mem.PieceBytes, unix.PROT_READ, unix.MAP_SHARED) // past the end every access is a SIGBUS
	require.NoError(t, err)
	p := &remote{table: new(mem.Dir), tableSeg: &memfd.Segment{FD: -1, Mem: peerMem}}
	defer p.tableSeg.Close()
	require.NotNil(t, p.region(1<<mem.IndexBits|7))
	require.Nil(t, p.region(1<<mem.IndexBits|mem.PieceSlots|7))
	require.Nil(t, p.region(1<<mem.IndexBits|mem.PieceSlots|7), "a second time")
}

// TestSHMTableShortage: a device that cannot have memory for its table goes on with the slots that
// it has.
func TestSHMTableShortage(t *testing.T) {
	e := newSHMEnd(t, 0)
	src := make([]byte, 8)
	var keys []uint32
	for len(keys) < mem.PieceSlots {
		key, err := addRegion(e.table, src, 0)
		require.NoError(t, err)
		keys = append(keys, key)
	}
	fd := e.w.local.tableSeg.FD
	e.w.local.tableSeg.FD = newMemfd(t, 4096, memfd.Seals) // which may not grow
	_, err := addRegion(e.table, src, 0)
	require.ErrorIs(t, err, unix.EPERM)
	e.w.local.tableSeg.FD = fd
	_, err = addRegion(e.table, src, 0)
	require.NoError(t, err)
	for _, key := range keys {
		require.NotNil(t, e.table.Find(key))
	}
}

// addRegion registers buf outside of any protection domain and returns its key.
func addRegion(t *mem.Table, buf []byte, access verbs.AccessFlags) (uint32, error) {
	r, err := t.Register(buf, access, nil)
	if err != nil {
		return 0, err
	}
	return r.RKey(), nil
}
