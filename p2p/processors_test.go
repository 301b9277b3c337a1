package p2p

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSharers(t *testing.T) {
	on := func(host, cpus string) card { return card{Host: host, CPUs: cpus} }
	unpinned := []card{on("a", "0-1"), on("b", "0-1"), on("a", "0-1"), on("a", "0-1")}
	pinned := []card{on("a", "0"), on("a", "1"), on("a", "0"), on("a", "2-3,5"), on("a", "3-4")}
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
		{[]card{on("a", "0"), on("a", ""), on("a", "1")}, 0, 2, 1},
		// One does not know its own.
		{[]card{on("a", "0"), on("a", ""), on("a", "1")}, 1, 3, runtime.NumCPU()},
		{[]card{on("a", "0"), on("a", "9-1"), on("a", "0-99999")}, 0, 3, 1}, // nonsense
	} {
		ranks, cpus := sharers(c.me, c.cards)
		require.Equal(t, [2]int{c.ranks, c.cpus}, [2]int{ranks, cpus}, "rank %d of %+v", c.me, c.cards)
	}
}

func TestCPURanges(t *testing.T) {
	for text, cpus := range map[string][]int{"0": {0}, "0-1": {0, 1}, "1,3-5,7": {1, 3, 4, 5, 7}, "1022-1023": {1022, 1023}} {
		require.Equal(t, text, cpuRanges(cpus))
		parsed, ok := parseCPUs(text)
		require.True(t, ok)
		require.Equal(t, cpus, parsed)
	}
	require.Empty(t, cpuRanges(nil))
}

func TestProcessors(t *testing.T) {
	if runtime.GOOS != "linux" {
		require.Empty(t, processors())
		return
	}
	require.Len(t, processors(), runtime.NumCPU())
	require.Equal(t, cpuRanges(processors()), newCard(filled(Config{}), nil).CPUs)
}

func TestParseCPUs(t *testing.T) {
	for text, want := range map[string][]int{"0": {0}, "1-3": {1, 2, 3}, "7,0,2-2": {7, 0, 2}} {
		cpus, ok := parseCPUs(text)
		require.True(t, ok, text)
		require.Equal(t, want, cpus, text)
	}
	for _, text := range []string{"", "a", "-1", "0,", "1-", "2-1", "1024", "0-9999999999", " 1"} {
		_, ok := parseCPUs(text)
		require.False(t, ok, text)
	}
}
