package coll_test

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/coll"
	"github.com/tagmatch/tagmatch/internal/testlevel"
	"github.com/tagmatch/tagmatch/p2p"
	"github.com/tagmatch/tagmatch/p2p/p2ptest"
)

// The tests in ported_*_test.go check what tests of MPICH (test/mpi/coll) and gloo (gloo/test)
// check and carry their names; docs/ported-tests.md lists them. None of their code is here.

// portedRow is one of them, on as many ranks as upstream: fn is called on each rank. Below level ci
// it is played with the first number only.
type portedRow struct {
	name  string // upstream
	ranks []int
	fn    func(t *testing.T, w *p2p.World)
}

// portedRows runs rows, by numbers of ranks and then in their order. Rows with as many ranks share
// Worlds, of which each has memory to prepare: after one that fails the others are not run.
func portedRows(t *testing.T, rows ...portedRow) {
	byRanks := map[int][]portedRow{}
	for _, row := range rows {
		ranks := row.ranks
		if !testlevel.CI() {
			ranks = ranks[:1]
		}
		for _, n := range ranks {
			byRanks[n] = append(byRanks[n], row)
		}
	}
	for _, n := range slices.Sorted(maps.Keys(byRanks)) {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			worlds(t, n, func(ws []*p2p.World) {
				for _, row := range byRanks[n] {
					if !t.Run(row.name, func(t *testing.T) { onRanks(ws, func(w *p2p.World) { row.fn(t, w) }, t.Failed) }) {
						return
					}
				}
			})
		})
	}
}

// worlds calls fn with n Worlds of this process, by rank.
func worlds(t *testing.T, n int, fn func(ws []*p2p.World)) {
	ws, end := make([]*p2p.World, n), make(chan struct{})
	var here atomic.Int32
	p2ptest.Run(t, n, func(w *p2p.World) {
		ws[w.Rank()] = w
		if here.Add(1) == int32(n) {
			defer close(end)
			fn(ws)
			return
		}
		<-end
	})
}

// onRanks calls fn for each World, in goroutines. A rank that has failed closes its World, so that
// the others notice.
func onRanks(ws []*p2p.World, fn func(w *p2p.World), failed func() bool) {
	var ranks sync.WaitGroup
	for _, w := range ws {
		ranks.Go(func() {
			defer func() {
				if failed() {
					w.Close()
				}
			}()
			fn(w)
		})
	}
	ranks.Wait()
}

// on lists numbers of ranks.
func on(ranks ...int) []int { return ranks }

// group is a row that is played in the Group of all ranks.
func group(fn func(t *testing.T, g *coll.Group)) func(t *testing.T, w *p2p.World) {
	return func(t *testing.T, w *p2p.World) { inGroup(t, w.Comm(), fn) }
}

// groups is a row that is played in Groups of each kind, as many of MPICH's tests are: that of all
// ranks, one with the ranks in the opposite order, and halves of that.
func groups(fn func(t *testing.T, g *coll.Group)) func(t *testing.T, w *p2p.World) {
	return func(t *testing.T, w *p2p.World) {
		inGroup(t, w.Comm(), fn)
		reversed := split(t, w.Comm(), 0, -w.Rank())
		inGroup(t, reversed, fn)
		half := split(t, reversed, reversed.Rank()%2, 0)
		inGroup(t, half, fn)
		require.NoError(t, half.Close())
		require.NoError(t, reversed.Close())
	}
}

func split(t *testing.T, c *p2p.Comm, color, key int) *p2p.Comm {
	part, err := c.Split(background, color, key)
	require.NoError(t, err)
	return part
}

// inGroup calls fn with a Group of c's ranks, and closes it.
func inGroup(t *testing.T, c *p2p.Comm, fn func(t *testing.T, g *coll.Group)) {
	g, err := coll.New(background, c)
	require.NoError(t, err)
	fn(t, g)
	require.NoError(t, g.Close())
}

// doubling lists 1, 2, 4 and so on below limit; below level ci every fourth of them, and the last.
func doubling(limit int) (list []int) {
	for n := 1; n < limit; n *= 2 {
		list = append(list, n)
	}
	if testlevel.CI() {
		return list
	}
	last := len(list) - 1
	few := []int{list[last]}
	for i := 0; i < last; i += 4 {
		few = append(few, list[i])
	}
	return few
}

// rounds is n, or less below level ci.
func rounds(n int) int {
	if testlevel.CI() {
		return n
	}
	return max(n/20, 1)
}

// made is a vector of n elements by index.
func made[T any](n int, element func(i int) T) []T {
	x := make([]T, n)
	for i := range x {
		x[i] = element(i)
	}
	return x
}

// same is a vector of n equal elements.
func same[T any](n int, element T) []T { return slices.Repeat([]T{element}, n) }

// untouched is what vectors hold that are not to be written, or before they are.
const untouched = -77

// requireElements requires n elements by index. It names the first that differs, as vectors are too
// long to print.
func requireElements[T comparable](t *testing.T, n int, want func(i int) T, got []T, about ...any) {
	t.Helper()
	require.Len(t, got, n, about...)
	for i := range got {
		if w := want(i); got[i] != w {
			require.FailNowf(t, "elements differ", "element %d of %d is %v, want %v %v", i, n, got[i], w, about)
		}
	}
}

// sumOfRanks is 0 + 1 + ... + n-1.
func sumOfRanks(n int) int { return n * (n - 1) / 2 }

// call is a call of coll as it is made: blocking, or started and waited for.
type call struct {
	block func() error
	start func() *coll.Pending
}

// do makes it, started where that is asked for.
func (c call) do(t *testing.T, started bool) {
	t.Helper()
	if started {
		require.NoError(t, c.start().Wait(background))
		return
	}
	require.NoError(t, c.block())
}

// bothWays plays fn with blocking calls and with started ones.
func bothWays(fn func(t *testing.T, g *coll.Group, started bool)) func(t *testing.T, g *coll.Group) {
	return func(t *testing.T, g *coll.Group) {
		for _, started := range []bool{false, true} {
			fn(t, g, started)
		}
	}
}
