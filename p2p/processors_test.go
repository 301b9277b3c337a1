package p2p

import (
	"encoding/binary"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSharers(t *testing.T) {
	on := func(host string, cpus ...int) card {
		c := at(host, "")
		c.cpus = newCPUSet(cpus)
		return c
	}
	with := func(host string, s cpuSet) card {
		c := at(host, "")
		c.cpus = s
		return c
	}
	unpinned := []card{on("a", 0, 1), on("b", 0, 1), on("a", 0, 1), on("a", 0, 1)}
	pinned := []card{on("a", 0), on("a", 1), on("a", 0), on("a", 2, 3, 50), on("a", 3, 4)}
	for _, c := range []struct {
		cards       []card
		me          int
		ranks, cpus int
	}{
		{unpinned, 0, 3, 2},
		{unpinned, 1, 1, 2},
		{pinned, 0, 2, 1},
		{pinned, 1, 1, 1},
		{pinned, 3, 2, 3},
		{pinned, 4, 2, 2},
		{[]card{on("a", 0), on("a"), on("a", 1)}, 0, 2, 1},
		// One does not know its own.
		{[]card{on("a", 0), on("a"), on("a", 1)}, 1, 3, runtime.NumCPU()},
		// Nonsense.
		{[]card{with("a", cpuSet{0, 0}), on("a", 3)}, 0, 2, runtime.NumCPU()},
		{[]card{with("a", cpuSet{3}), on("a", 3)}, 0, 2, runtime.NumCPU()},
		{[]card{with("a", cpuSet{0x80}), on("a", 3)}, 0, 2, runtime.NumCPU()},
		{[]card{with("a", binary.AppendUvarint([]byte{0}, 1<<63)), on("a", 3)}, 0, 2, runtime.NumCPU()},
		{[]card{with("a", append(binary.AppendUvarint([]byte{0}, maxCPU), 0, 1)), on("a", 3)}, 0, 2, maxCPU},
	} {
		ranks, cpus := put(c.cards...).sharers(c.me)
		require.Equal(t, [2]int{c.ranks, c.cpus}, [2]int{ranks, cpus}, "rank %d of %+v", c.me, c.cards)
	}
}

func TestProcessors(t *testing.T) {
	if runtime.GOOS != "linux" {
		require.Empty(t, processors())
		return
	}
	require.Equal(t, runtime.NumCPU(), processors().count())
	require.Equal(t, processors(), newCard(filled(Config{}), nil).cpus)
}

// TestCPUSetsThatAreLong are unknown.
func TestCPUSetsThatAreLong(t *testing.T) {
	var cpus []int
	for n := range maxCPUSet/2 + 1 {
		require.Equal(t, n, newCPUSet(cpus).count())
		cpus = append(cpus, 2*n)
	}
	require.Nil(t, newCPUSet(cpus))
}
