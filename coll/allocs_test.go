package coll_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/tagmatch/tagmatch/coll"
	"github.com/tagmatch/tagmatch/internal/invariant"
	"github.com/tagmatch/tagmatch/p2p"
)

// TestAllocations: blocking calls of up to 64 KiB allocate nothing in this package. What is below
// has tests of its own.
func TestAllocations(t *testing.T) {
	if invariant.Enabled {
		return // calls are compared, as texts
	}
	rate := runtime.MemProfileRate
	runtime.MemProfileRate = 1
	defer func() { runtime.MemProfileRate = rate }()
	const n = 3
	sum := coll.Sum[float32]()
	first := coll.Func(false, func(acc, _ []triple) { _ = acc })
	each(t, n, func(g *coll.Group, _ *p2p.World) {
		x, all, other := make([]float32, 16<<10), make([]float32, n*16<<10), make([]float32, n*16<<10)
		y, allY, otherY := make([]triple, 5<<10), make([]triple, n*5<<10), make([]triple, n*5<<10)
		round := func() {
			for _, k := range []int{2, 300, 5 << 10} {
				for _, err := range []error{
					coll.Bcast(background, g, 1, y[:k]),
					coll.AllReduce(background, g, first, y[:k]),
					coll.Scan(background, g, first, y[:k]),
					coll.ReduceScatter(background, g, first, y[:k/n], allY[:k/n*n]),
					coll.AllGather(background, g, allY[:k*n], y[:k]),
					coll.AllToAll(background, g, otherY[:k/n*n], allY[:k/n*n]),
				} {
					assert.NoError(t, err)
				}
			}
			for _, k := range []int{2, 1 << 10, 16 << 10} {
				for _, err := range []error{
					coll.Barrier(background, g),
					coll.Bcast(background, g, 1, x[:k]),
					coll.Reduce(background, g, 1, sum, x[:k]),
					coll.AllReduce(background, g, sum, x[:k]),
					coll.Scan(background, g, sum, x[:k]),
					coll.ExScan(background, g, sum, x[:k]),
					coll.ReduceScatter(background, g, sum, x[:k/n], all[:k/n*n]),
					coll.Gather(background, g, 1, all[:k*n], x[:k]),
					coll.Scatter(background, g, 1, x[:k], all[:k*n]),
					coll.AllGather(background, g, all[:k*n], x[:k]),
					coll.AllToAll(background, g, other[:k/n*n], all[:k/n*n]),
				} {
					assert.NoError(t, err)
				}
			}
		}
		round() // scratch memory and lists of requests are kept from here on
		assert.NoError(t, coll.Barrier(background, g))
		before := allocated()
		assert.NoError(t, coll.Barrier(background, g))
		for range 5 {
			round()
		}
		assert.NoError(t, coll.Barrier(background, g))
		if after := allocated(); g.Rank() == 0 {
			assert.Equal(t, before, after)
		}
	})
}

// triple is an element whose size divides no border.
type triple [3]uint32

// allocated is how many objects each line of package coll has allocated.
func allocated() map[string]int64 {
	runtime.GC() // the profile is of the time before the last two
	runtime.GC()
	var records []runtime.MemProfileRecord
	n, ok := runtime.MemProfile(nil, true)
	for !ok {
		records = make([]runtime.MemProfileRecord, n+100)
		n, ok = runtime.MemProfile(records, true)
	}
	counts := map[string]int64{}
	for _, r := range records[:n] {
		frames := runtime.CallersFrames(r.Stack())
		for more := true; more; {
			var f runtime.Frame
			f, more = frames.Next()
			if strings.HasPrefix(f.Function, "runtime.") {
				continue
			}
			if strings.Contains(f.Function, "tagmatch/coll.") {
				counts[fmt.Sprintf("%s:%d", f.File, f.Line)] += r.AllocObjects
			}
			break
		}
	}
	return counts
}
