package coll

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/testlevel"
	"github.com/tagmatch/tagmatch/p2p"
	"github.com/tagmatch/tagmatch/p2p/p2ptest"
)

// TestLayout: teams are made where hosts have as many members each, more than one.
func TestLayout(t *testing.T) {
	type row struct {
		hosts          []int
		rank           int
		inside, across []int
		inOrder        bool
	}
	for _, r := range []row{
		{[]int{0, 0, 2, 2, 4, 4}, 3, []int{2, 3}, []int{1, 3, 5}, true},
		{[]int{0, 1, 0, 1, 0, 1}, 4, []int{0, 2, 4}, []int{4, 5}, false},
		{[]int{7, 7, 7}, 1, nil, nil, true},
		{[]int{0, 1, 2}, 1, nil, nil, true},
		{[]int{0, 0, 2}, 1, nil, nil, true},
	} {
		l := newLayout(r.rank, len(r.hosts), func(rank int) int { return r.hosts[rank] })
		assert.Equal(t, r.inOrder, l.inOrder, "%v", r)
		if r.inside == nil {
			assert.Nil(t, l.hosts, "%v", r)
			assert.Equal(t, team{rank: r.rank, size: len(r.hosts)}, l.inside)
			continue
		}
		assert.Equal(t, r.inside, l.inside.members, "%v", r)
		assert.Equal(t, r.across, l.across.members, "%v", r)
		assert.Equal(t, []int{r.rank, r.rank}, []int{l.inside.member(l.inside.rank), l.across.member(l.across.rank)})
	}
}

// TestHosts plays the algorithms by hosts as if the ranks were on several, by blocks and in turns.
// A product that does not commute is combined in the order of ranks in turns, too.
func TestHosts(t *testing.T) {
	layouts := [][2]int{{4, 2}, {6, 3}}
	if testlevel.CI() {
		layouts = append(layouts, [2]int{6, 2}, [2]int{9, 3}, [2]int{16, 4}, [2]int{5, 2})
	}
	for _, l := range layouts {
		n, hosts := l[0], l[1]
		t.Run(fmt.Sprintf("%d on %d", n, hosts), func(t *testing.T) {
			p2ptest.Run(t, n, func(w *p2p.World) {
				g, err := New(background, w.Comm())
				require.NoError(t, err)
				for _, hostOf := range []func(rank int) int{
					func(rank int) int { return rank * hosts / n },
					func(rank int) int { return rank % hosts },
				} {
					g.layout = newLayout(g.Rank(), n, hostOf)
					playHosts(t, g)
				}
				require.NoError(t, g.Close())
			})
		})
	}
}

// playHosts calls what goes by hosts with several lengths, and by a Sum.
func playHosts(t *testing.T, g *Group) {
	for i, elements := range lengths(g.Size()) {
		for _, k := range []kind{allReduce, allGather} {
			if !assert.NoError(t, play(g.use(t, k.String()+":hosts"), k, elements, uint64(i)), "%v of %d elements", k, elements) {
				return
			}
		}
		require.NoError(t, Barrier(background, g))
		forget()
		x := make([]int64, elements)
		for j := range x {
			x[j] = int64(j * (g.Rank() + 1))
		}
		require.NoError(t, AllReduce(background, g, Sum[int64](), x))
		for j := range x {
			require.Equal(t, int64(j*g.Size()*(g.Size()+1)/2), x[j])
		}
	}
}

// TestNear: members that share memory swap short vectors, if all of them have seen that.
func TestNear(t *testing.T) {
	devices := []string{"", "shm", "tcp"}
	if runtime.GOOS != "linux" {
		devices = devices[:1] // the others need it
	}
	for _, device := range devices {
		for _, doubts := range []int{-1, 2} { // a rank that has not seen it
			p2ptest.RunConfig(t, 3, p2p.Config{Device: device}, func(w *p2p.World) {
				seen := shareMemory(w.Comm())
				assert.Equal(t, device != "tcp", seen)
				g, err := newGroup(t.Context(), w.Comm(), rules{}, seen && w.Rank() != doubts)
				require.NoError(t, err)
				assert.Equal(t, 3, g.Size())
				assert.Equal(t, device != "tcp" && doubts < 0, g.near)
				x := []int32{int32(w.Rank())}
				require.NoError(t, AllReduce(t.Context(), g, Sum[int32](), x))
				assert.Equal(t, []int32{3}, x)
				require.NoError(t, g.Close())
			})
		}
	}
}
