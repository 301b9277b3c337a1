//go:build linux

package soft

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/tagmatch/tagmatch/verbs"
)

// allocated is how many bytes of a segment have memory.
func allocated(t *testing.T, s *segment) int {
	var st unix.Stat_t
	require.NoError(t, unix.Fstat(s.fd, &st))
	return int(st.Blocks) * 512
}

// TestSHMTableGrows: a peer that mapped the region table when it was small reads by keys of what it
// has become; memory is there for the slots in use and no others.
func TestSHMTableGrows(t *testing.T) {
	a, b := newSHMEnd(t, 0), newSHMEnd(t, 1)
	l := joinSHM(t, a, b)
	src, dst := bytes.Repeat([]byte("x"), 100), make([]byte, 100)
	seg := b.w.local.tableSeg
	require.Equal(t, pieceBytes, allocated(t, seg))
	first, err := b.table.add(src, verbs.AccessRemoteRead)
	require.NoError(t, err)
	require.Equal(t, verbs.WCSuccess, l.memory().read(dst, addrOf(src), first))

	const n = 5*pieceRegions + 1
	keys := []uint32{first}
	for len(keys) < n {
		key, err := b.table.add(src, verbs.AccessRemoteRead)
		require.NoError(t, err)
		keys = append(keys, key)
	}
	require.Equal(t, 6*pieceBytes, allocated(t, seg))
	for _, key := range keys {
		clear(dst)
		require.Equal(t, verbs.WCSuccess, l.memory().read(dst, addrOf(src), key))
		require.Equal(t, src, dst)
	}
	for _, key := range keys {
		b.table.remove(key)
		require.Equal(t, verbs.WCRemAccessErr, l.memory().read(dst, addrOf(src), key))
	}
	require.Equal(t, 6*pieceBytes, allocated(t, seg))
	require.Equal(t, verbs.WCRemAccessErr, l.memory().read(dst, addrOf(src), 1<<regionIndexBits|regionIndexMask), "nobody's slot")
}

// TestSHMTableGap: a key whose slot lies where a peer has no memory is refused; it is no fault of
// this process.
func TestSHMTableGap(t *testing.T) {
	fd := memfd(t, pieceBytes+4096, wantedSeals)
	mem, err := unix.Mmap(fd, 0, 2*pieceBytes, unix.PROT_READ, unix.MAP_SHARED) // past the end every access is a SIGBUS
	require.NoError(t, err)
	p := &shmPeer{table: new(regionDir), tableSeg: &segment{fd: -1, mem: mem}}
	defer p.tableSeg.close()
	require.NotNil(t, p.region(1<<regionIndexBits|7))
	require.Nil(t, p.region(1<<regionIndexBits|pieceRegions|7))
	require.Nil(t, p.region(1<<regionIndexBits|pieceRegions|7), "a second time")
}

// TestSHMTableShortage: a device that cannot have memory for its table goes on with the slots that
// it has.
func TestSHMTableShortage(t *testing.T) {
	e := newSHMEnd(t, 0)
	src := make([]byte, 8)
	var keys []uint32
	for len(keys) < pieceRegions {
		key, err := e.table.add(src, 0)
		require.NoError(t, err)
		keys = append(keys, key)
	}
	fd := e.w.local.tableSeg.fd
	e.w.local.tableSeg.fd = memfd(t, 4096, wantedSeals) // which may not grow
	_, err := e.table.add(src, 0)
	require.ErrorIs(t, err, unix.EPERM)
	e.w.local.tableSeg.fd = fd
	_, err = e.table.add(src, 0)
	require.NoError(t, err)
	for _, key := range keys {
		require.NotNil(t, e.table.find(key))
	}
}
