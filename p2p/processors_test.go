package p2p

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSharers(t *testing.T) {
	on := func(host string, cpus ...int) card {
		var s cpuSet
		for _, cpu := range cpus {
			s = append(s, make([]byte, max(0, cpu/8+1-len(s)))...)
			s[cpu/8] |= 1 << (cpu % 8)
		}
		return card{Host: host, CPUs: s}
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
		{[]card{{CPUs: cpuSet{0, 0}}, on("", 3)}, 0, 2, runtime.NumCPU()}, // nonsense
	} {
		ranks, cpus := sharers(c.me, c.cards)
		require.Equal(t, [2]int{c.ranks, c.cpus}, [2]int{ranks, cpus}, "rank %d of %+v", c.me, c.cards)
	}
}

func TestProcessors(t *testing.T) {
	if runtime.GOOS != "linux" {
		require.Empty(t, processors())
		return
	}
	require.Equal(t, runtime.NumCPU(), processors().count())
	require.NotZero(t, processors()[len(processors())-1], "no longer than need be")
	require.Equal(t, processors(), newCard(filled(Config{}), nil).CPUs)
}
