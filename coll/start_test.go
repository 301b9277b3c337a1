package coll

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/inspect/stacks"
	"github.com/tagmatch/tagmatch/internal/testlevel"
	"github.com/tagmatch/tagmatch/p2p"
	"github.com/tagmatch/tagmatch/p2p/p2ptest"
)

// TestStarted has many operations under way at once, of all kinds and lengths, on two Groups; some
// are blocking ones between. The order in which they are waited for is any.
func TestStarted(t *testing.T) {
	rounds := 3
	if testlevel.CI() {
		rounds = 20
	}
	for _, device := range []string{"", "shm", "tcp"} {
		t.Run(device, func(t *testing.T) {
			p2ptest.RunConfig(t, 4, p2p.Config{Device: device}, func(w *p2p.World) {
				a, err := New(background, w.Comm())
				require.NoError(t, err)
				b, err := New(background, w.Comm())
				require.NoError(t, err)
				for round := range rounds {
					r := rand.New(rand.NewPCG(uint64(round), 1)) // the same on all ranks
					var under sync.WaitGroup
					for i := range 40 {
						g, x := a, vector(uint64(i), w.Rank(), r.IntN(3000))
						if r.IntN(2) == 0 {
							g = b
						}
						if r.IntN(8) == 0 {
							assert.NoError(t, play(g, kind(r.IntN(int(kinds))), len(x), uint64(i)))
							continue
						}
						p := StartAllReduce(g, product, x)
						under.Go(func() {
							if assert.NoError(t, p.Wait(background)) {
								assert.NoError(t, same(x, prefix(uint64(i), w.Size(), len(x))))
							}
						})
					}
					under.Wait()
				}
				require.NoError(t, a.Close())
				require.NoError(t, b.Close())
			})
		})
	}
}

// TestStart plays each Start call once.
func TestStart(t *testing.T) {
	const n, k = 3, 100
	p2ptest.Run(t, n, func(w *p2p.World) {
		g, err := New(background, w.Comm())
		require.NoError(t, err)
		rank, own := w.Rank(), func(i int) []matrix { return vector(uint64(i), w.Rank(), k) }
		x := make([][]matrix, 16)
		for i := range x {
			x[i] = own(i)
		}
		all, gathered, every := make([]matrix, n*k), make([]matrix, n*k), make([]matrix, n*k)
		var ragged, pieces [][]matrix
		var allRagged [][]matrix
		var mine []matrix
		for i, p := range []*Pending{
			StartBarrier(g),
			StartBcast(g, 1, x[0]),
			StartReduce(g, 1, product, x[1]),
			StartAllReduce(g, product, x[2]),
			StartScan(g, product, x[3]),
			StartExScan(g, product, x[4]),
			StartReduceScatter(g, product, x[5], vector(5, rank, n*k)),
			StartGather(g, 1, gathered, x[6]),
			StartScatter(g, 1, x[7], vector(7, 1, n*k)),
			StartAllGather(g, every, x[8]),
			StartAllToAll(g, all, vector(9, rank, n*k)),
			StartGatherV(g, 1, x[10], &ragged),
			StartScatterV(g, 1, [][]matrix{vector(11, 1, 1), vector(11, 1, 2), vector(11, 1, 3)}, &mine),
			StartAllGatherV(g, x[12], &allRagged),
			StartAllToAllV(g, [][]matrix{own(13)[:1], own(13)[:2], own(13)[:3]}, &pieces),
		} {
			require.NoError(t, p.Wait(background), "operation %d", i)
			<-p.Done()
		}
		root := rank == 1
		check := func(what string, got, want []matrix) { assert.NoError(t, same(got, want), what) }
		check("bcast", x[0], vector(0, 1, k))
		if root {
			check("reduce", x[1], prefix(1, n, k))
			check("gather", gathered, everything(6, n, k))
			check("gatherv", flat(ragged), everything(10, n, k))
		}
		check("allreduce", x[2], prefix(2, n, k))
		check("scan", x[3], prefix(3, rank+1, k))
		if rank > 0 {
			check("exscan", x[4], prefix(4, rank, k))
		}
		check("reducescatter", x[5], prefix(5, n, n*k)[rank*k:(rank+1)*k])
		check("scatter", x[7], vector(7, 1, n*k)[rank*k:(rank+1)*k])
		check("allgather", every, everything(8, n, k))
		var blocks []matrix
		for r := range n {
			blocks = append(blocks, vector(9, r, n*k)[rank*k:(rank+1)*k]...)
		}
		check("alltoall", all, blocks)
		check("scatterv", mine, vector(11, 1, rank+1))
		check("allgatherv", flat(allRagged), everything(12, n, k))
		for r := range n {
			check("alltoallv", pieces[r], vector(13, r, k)[:rank+1])
		}
		require.NoError(t, g.Close())
	})
}

// TestStartedNames: the stacks of operations that were started name the calls of the program.
func TestStartedNames(t *testing.T) {
	start := func(g *Group) []*Pending { // all of them wait for rank 0
		x, two := func() []int64 { return make([]int64, 1) }, func() []int64 { return make([]int64, 2) }
		return []*Pending{
			StartBarrier(g), StartBcast(g, 0, x()), StartReduce(g, 1, Sum[int64](), x()), StartAllReduce(g, Sum[int64](), x()),
			StartReduceScatter(g, Sum[int64](), x(), two()), StartScan(g, Sum[int64](), x()), StartExScan(g, Sum[int64](), x()),
			StartGather(g, 1, two(), x()), StartScatter(g, 0, x(), two()), StartAllGather(g, two(), x()), StartAllToAll(g, two(), two()),
			StartGatherV(g, 1, x(), new([][]int64)), StartScatterV(g, 0, [][]int64{x(), x()}, new([]int64)),
			StartAllGatherV(g, x(), new([][]int64)), StartAllToAllV(g, [][]int64{x(), x()}, new([][]int64)),
		}
	}
	var want []string
	for _, name := range callNames {
		want = append(want, "coll.Start"+name)
	}
	slices.Sort(want)
	p2ptest.Run(t, 2, func(w *p2p.World) {
		g, err := New(background, w.Comm())
		require.NoError(t, err)
		if w.Rank() == 0 {
			_, err := w.Comm().Recv(background, 1, 1, nil)
			require.NoError(t, err)
		}
		list := start(g)
		if w.Rank() == 1 {
			require.Eventually(t, func() bool {
				calls, _, _ := stacks.Parse(stacks.Take())
				var names []string
				for _, c := range calls {
					if strings.HasPrefix(c.Name, "coll.") {
						names = append(names, c.Name)
					}
				}
				return slices.Equal(slices.Compact(names), want)
			}, testlevel.Patience(time.Minute), time.Millisecond)
			require.NoError(t, w.Comm().Send(background, 0, 1, nil))
		}
		for _, p := range list {
			require.NoError(t, p.Wait(background))
		}
		require.NoError(t, g.Close())
	})
}

// TestPendingWait: the context bounds the waiting alone.
func TestPendingWait(t *testing.T) {
	p2ptest.Run(t, 2, func(w *p2p.World) {
		g, err := New(background, w.Comm())
		require.NoError(t, err)
		if w.Rank() == 0 {
			p := StartBarrier(g)
			ended, end := context.WithCancel(background)
			end()
			assert.ErrorIs(t, p.Wait(ended), context.Canceled)
			var none context.Context
			assert.ErrorIs(t, p.Wait(none), p2p.ErrInvalid)
			assert.NoError(t, w.Comm().Send(background, 1, 1, nil))
			assert.NoError(t, p.Wait(background))
			assert.NoError(t, p.Wait(ended), "it has ended")
		} else {
			_, err := w.Comm().Recv(background, 0, 1, nil)
			assert.NoError(t, err)
			assert.NoError(t, Barrier(background, g))
		}
		require.NoError(t, g.Close())
	})
}

// TestCheck: calls that differ in anything fail on all members, which name both.
func TestCheck(t *testing.T) {
	ints := func(n int) []int32 { return make([]int32, n) }
	for _, c := range []struct {
		calls       [2]func(g *Group) error
		first, last string
	}{
		{[2]func(g *Group) error{
			func(g *Group) error { return Barrier(background, g) },
			func(g *Group) error { return Bcast(background, g, 0, ints(1)) },
		}, `barrier`, `bcast of int32, root 0, 1 elements`},
		{[2]func(g *Group) error{
			func(g *Group) error { return Bcast(background, g, 0, ints(1)) },
			func(g *Group) error { return Bcast(background, g, 1, ints(1)) },
		}, `bcast of int32, root 0, 1 elements`, `bcast of int32, root 1, 1 elements`},
		{[2]func(g *Group) error{
			func(g *Group) error { return AllReduce(background, g, Sum[int32](), ints(2)) },
			func(g *Group) error { return AllReduce(background, g, Sum[int32](), ints(3)) },
		}, `allreduce of int32 by sum, 2 elements`, `allreduce of int32 by sum, 3 elements`},
		{[2]func(g *Group) error{
			func(g *Group) error { return AllReduce(background, g, Sum[int32](), ints(2)) },
			func(g *Group) error { return AllReduce(background, g, Max[int32](), ints(2)) },
		}, `allreduce of int32 by sum, 2 elements`, `allreduce of int32 by max, 2 elements`},
		{[2]func(g *Group) error{
			func(g *Group) error { return AllReduce(background, g, Sum[int32](), ints(2)) },
			func(g *Group) error { return AllReduce(background, g, Sum[uint32](), make([]uint32, 2)) },
		}, `allreduce of int32 by sum, 2 elements`, `allreduce of uint32 by sum, 2 elements`},
	} {
		p2ptest.Run(t, 3, func(w *p2p.World) {
			g, err := New(background, w.Comm())
			require.NoError(t, err)
			g.rules.check = true
			assert.NoError(t, Barrier(background, g))
			call := 0
			if w.Rank() == 2 {
				call = 1
			}
			err = c.calls[call](g)
			assert.ErrorIs(t, err, p2p.ErrInvalid)
			assert.ErrorContains(t, err, fmt.Sprintf("the members make different calls: rank 0 %q, rank 2 %q", c.first, c.last))
			require.NoError(t, g.Close())
		})
	}
}

// TestCheckStarted: after calls that differ nobody waits in the next ones, whether they have begun
// before that was found or after.
func TestCheckStarted(t *testing.T) {
	p2ptest.Run(t, 3, func(w *p2p.World) {
		g, err := New(background, w.Comm())
		require.NoError(t, err)
		g.rules.check = true
		assert.NoError(t, w.Comm().Barrier(background)) // all have a Group
		if w.Rank() < 2 {
			first, second := StartAllReduce(g, Sum[int32](), make([]int32, 2)), StartAllReduce(g, Sum[int32](), make([]int32, 3))
			assert.Error(t, first.Wait(background))
			assert.Error(t, second.Wait(background))
		} else {
			assert.Error(t, AllReduce(background, g, Sum[int32](), make([]int32, 3)))
			assert.Error(t, StartAllReduce(g, Sum[int32](), make([]int32, 3)).Wait(background))
		}
		require.NoError(t, g.Close())
	})
}

// TestRules: what TAGMATCH_COLL says is read in New, and mistakes are named.
func TestRules(t *testing.T) {
	for text, want := range map[string]string{
		"allreduce:ring": "TAGMATCH_COLL=allreduce:ring: allreduce has doubling, swap, hosts, direct, halving",
		"sum":            `TAGMATCH_COLL=sum: "sum" is neither check nor an operation with its algorithm, such as allreduce:direct`,
		"check,,":        `TAGMATCH_COLL=check,,: "" is neither check nor an operation with its algorithm, such as allreduce:direct`,
	} {
		_, err := parseRules(text)
		assert.ErrorIs(t, err, p2p.ErrInvalid)
		assert.ErrorContains(t, err, want)
	}
	r, err := parseRules("check,allreduce:direct,bcast:chain")
	assert.NoError(t, err)
	assert.True(t, r.check)
	t.Setenv(Environment, "allreduce:ring")
	p2ptest.Run(t, 1, func(w *p2p.World) {
		_, err := New(background, w.Comm())
		assert.ErrorContains(t, err, "coll: new: invalid argument: TAGMATCH_COLL=allreduce:ring: allreduce has doubling, swap, hosts, direct, halving")
	})
}

// TestRulesDiffer: all members hear it.
func TestRulesDiffer(t *testing.T) {
	p2ptest.Run(t, 3, func(w *p2p.World) {
		mine := rules{text: "check"}
		if w.Rank() == 1 {
			mine.text = ""
		}
		_, err := newGroup(background, w.Comm(), mine, true)
		assert.ErrorIs(t, err, p2p.ErrInvalid)
		assert.ErrorContains(t, err, fmt.Sprintf("the environments differ: here TAGMATCH_COLL=%s, rank %d has another one", mine.text, 1-w.Rank()%2))
		require.NoError(t, w.Comm().Barrier(background))
	})
}
