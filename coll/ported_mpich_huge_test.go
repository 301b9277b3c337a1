//go:build linux

package coll_test

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/tagmatch/tagmatch/coll"
	"github.com/tagmatch/tagmatch/internal/invariant"
	"github.com/tagmatch/tagmatch/internal/testlevel"
)

// TestPortedMPICHHuge has what MPICH's test/mpi/coll checks of vectors above 2 GiB.
func TestPortedMPICHHuge(t *testing.T) {
	mine := filled(t, sized(512<<20)+5, pattern(0))
	portedRows(t,
		portedRow{"coll_large.option1", on(2), group(collLargeOption)},
		portedRow{"gather_big", on(4), group(func(t *testing.T, g *coll.Group) { gatherBig(t, g, mine) })},
	)
}

// sized is n bytes, or fewer where that would take too long, or too much memory.
func sized(n int) int {
	if !testlevel.CI() || testlevel.Race || invariant.Enabled {
		return n >> 8
	}
	return n
}

// mapped is n bytes in huge pages, which are sooner there. They are given back after the test.
func mapped(t *testing.T, n int) []byte {
	m, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	require.NoError(t, err)
	_ = unix.Madvise(m, unix.MADV_HUGEPAGE) // kernels without them do without
	t.Cleanup(func() { require.NoError(t, unix.Munmap(m)) })
	return m
}

// pattern is a block of bytes by position and seed; its length is no power of two.
func pattern(seed int) []byte {
	return made(1<<20-3, func(i int) byte { return byte(i%251 + seed) })
}

// filled is memory that is the block again and again.
func filled(t *testing.T, n int, block []byte) []byte {
	x := mapped(t, n)
	for at := 0; at < n; {
		at += copy(x[at:], block)
	}
	return x
}

// requireBlocks requires the same.
func requireBlocks(t *testing.T, block, x []byte) {
	t.Helper()
	for at := 0; at < len(x); at += len(block) {
		n := min(len(block), len(x)-at)
		require.True(t, bytes.Equal(block[:n], x[at:at+n]), "bytes differ in the block at %d", at)
	}
}

// collLargeOption (coll_large with option 1): AllReduce of vectors of 3 GiB and a bit.
func collLargeOption(t *testing.T, g *coll.Group) {
	x := filled(t, sized(3<<30)+100, pattern(g.Rank()))
	require.NoError(t, coll.AllReduce(background, g, coll.Sum[uint8](), x))
	sum := pattern(0)
	for i, b := range pattern(1) {
		sum[i] += b
	}
	requireBlocks(t, sum, x)
}

// gatherBig (gather_big): 2 GiB and a bit come to the last rank. To save memory all ranks give of
// one vector, each from another byte on. (Upstream 8 GiB.)
func gatherBig(t *testing.T, g *coll.Group, mine []byte) {
	n, root := sized(512<<20)+1, g.Size()-1
	var all []byte
	if g.Rank() == root {
		all = mapped(t, n*g.Size())
	}
	require.NoError(t, coll.Gather(background, g, root, all, mine[g.Rank():][:n]))
	if g.Rank() == root {
		for rank := range g.Size() {
			require.True(t, bytes.Equal(mine[rank:][:n], all[rank*n:][:n]), "what rank %d has given", rank)
		}
	}
	require.NoError(t, coll.Barrier(background, g))
}
