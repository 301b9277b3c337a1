package coll

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/testlevel"
	"github.com/tagmatch/tagmatch/p2p"
	"github.com/tagmatch/tagmatch/p2p/p2ptest"
)

var background = context.Background()

// matrix is a triangular 2x2 matrix of numbers modulo 2^32, whose product does not commute. No
// border of an algorithm is a multiple of its 12 bytes.
type matrix struct{ a, b, d uint32 }

func (x matrix) times(y matrix) matrix { return matrix{x.a * y.a, x.a*y.b + x.b*y.d, x.d * y.d} }

var product = Func(false, func(acc, in []matrix) {
	for i := range acc {
		acc[i] = acc[i].times(in[i])
	}
})

// vector is what a rank gives to an operation: a copy that the caller may change.
func vector(seed uint64, rank, n int) []matrix {
	return slices.Clone(remembered(question{"vector", seed, rank, rank, n}, func() []matrix {
		r := rand.New(rand.NewPCG(seed, uint64(rank)))
		x := make([]matrix, n)
		for i := range x {
			x[i] = matrix{r.Uint32(), r.Uint32(), r.Uint32()}
		}
		return x
	}))
}

// prefix is the product of the vectors of ranks from 0 to until.
func prefix(seed uint64, until, n int) []matrix {
	return slices.Clone(remembered(question{"prefix", seed, 0, until, n}, func() []matrix {
		if until == 1 {
			return vector(seed, 0, n)
		}
		x := prefix(seed, until-1, n)
		for i, m := range vector(seed, until-1, n) {
			x[i] = x[i].times(m)
		}
		return x
	}))
}

// question is what remembered has been asked: all ranks of a test ask the same.
type question struct {
	what          string
	seed          uint64
	from, till, n int
}

var answers = struct {
	sync.Mutex
	by map[question][]matrix
}{by: map[question][]matrix{}}

// remembered works out an answer once.
func remembered(q question, work func() []matrix) []matrix {
	answers.Lock()
	x, known := answers.by[q]
	answers.Unlock()
	if !known {
		x = work()
		answers.Lock()
		answers.by[q] = x
		answers.Unlock()
	}
	return x
}

// forget is called by each rank when all are done with these vectors.
func forget() {
	answers.Lock()
	defer answers.Unlock()
	clear(answers.by)
}

// use has g take these algorithms.
func (g *Group) use(t testing.TB, text string) *Group {
	r, err := parseRules(text)
	require.NoError(t, err)
	g.rules.named = r.named
	return g
}

// TestAlgorithms calls each algorithm by its name, at sizes around its borders and the pieces', and
// compares with plain loops.
func TestAlgorithms(t *testing.T) {
	ranks := []int{1, 2, 3, 5, 8}
	if testlevel.CI() {
		ranks = []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 16, 17}
	}
	for _, n := range ranks {
		t.Run(fmt.Sprint(n), func(t *testing.T) { playAll(t, n, p2p.Config{}) })
	}
}

// TestWirings does so with each transport over each wire between processes.
func TestWirings(t *testing.T) {
	for _, transport := range []string{"rc", "tmsrq"} {
		for _, device := range []string{"shm", "tcp"} {
			if !testlevel.CI() && (transport == "rc") != (device == "tcp") {
				continue
			}
			t.Run(transport+"/"+device, func(t *testing.T) {
				playAll(t, 3, p2p.Config{Transport: transport, Device: device, OffloadMin: -1})
			})
		}
	}
}

// TestLittleRoom does so where few messages may wait at their senders, and at their receivers.
func TestLittleRoom(t *testing.T) {
	for _, device := range []string{"shm", "tcp"} {
		if device == "tcp" && !testlevel.CI() {
			continue
		}
		t.Run(device, func(t *testing.T) {
			playAll(t, 4, p2p.Config{Device: device, SendLimit: -1, UnexpectedLimit: 1 << 16})
		})
	}
}

// playAll plays each algorithm on n ranks.
func playAll(t *testing.T, n int, cfg p2p.Config) {
	p2ptest.RunConfig(t, n, cfg, func(w *p2p.World) {
		g, err := New(background, w.Comm())
		require.NoError(t, err)
		for i, elements := range lengths(n) {
			for k := range kinds {
				for _, a := range algorithms[k] {
					g.use(t, fmt.Sprintf("%v:%s", k, a.name))
					if !assert.NoError(t, play(g, k, elements, uint64(i)), "%v:%s of %d elements", k, a.name, elements) {
						return
					}
				}
			}
			require.NoError(t, Barrier(background, g))
			forget()
		}
		require.NoError(t, g.Close())
	})
}

// lengths are those around the borders of what depends on them, in elements.
func lengths(n int) []int {
	const each, step = piece / 12, stepBytes / 12
	list := []int{0, 1, n - 1, n, n + 1, 100, each + 1}
	if n <= 5 {
		list = append(list, each-1, step+5)
	}
	if testlevel.CI() && n <= 4 {
		list = append(list, each, each*n, step, 3*step-1)
	}
	return list
}

// play does an operation of a kind with n elements, and checks what comes out.
func play(g *Group, k kind, n int, seed uint64) error {
	size, rank, root := g.Size(), g.Rank(), int(seed)%g.Size()
	x := vector(seed, rank, n)
	want := vector(seed, rank, n)
	var err error
	switch k {
	case barrier:
		return Barrier(background, g)
	case bcast:
		want = vector(seed, root, n)
		err = Bcast(background, g, root, x)
	case reduce:
		if rank == root {
			want = prefix(seed, size, n)
		}
		err = Reduce(background, g, root, product, x)
	case allReduce:
		want = prefix(seed, size, n)
		err = AllReduce(background, g, product, x)
	case scan:
		want = prefix(seed, rank+1, n)
		err = Scan(background, g, product, x)
	case exScan:
		if rank > 0 {
			want = prefix(seed, rank, n)
		}
		err = ExScan(background, g, product, x)
	case reduceScatter:
		all := vector(seed, rank, n*size)
		err = ReduceScatter(background, g, product, x, all)
		if e := same(all, vector(seed, rank, n*size)); e != nil {
			return e
		}
		want = prefix(seed, size, n*size)[rank*n : (rank+1)*n]
	case gather:
		all := make([]matrix, n*size)
		if err = Gather(background, g, root, all, x); rank == root && err == nil {
			err = same(all, everything(seed, size, n))
		}
	case scatter:
		err = Scatter(background, g, root, x, vector(seed, root, n*size))
		want = vector(seed, root, n*size)[rank*n : (rank+1)*n]
	case allGather:
		all := make([]matrix, n*size)
		if err = AllGather(background, g, all, x); err == nil {
			err = same(all, everything(seed, size, n))
		}
	case allToAll:
		x = make([]matrix, n*size)
		err = AllToAll(background, g, x, vector(seed, rank, n*size))
		want = nil
		for r := range size {
			want = append(want, vector(seed, r, n*size)[rank*n:(rank+1)*n]...)
		}
	case gatherV:
		x = x[:0]
		want = nil
		all, e := GatherV(background, g, root, vector(seed, rank, n*rank%97))
		if err = e; rank == root {
			x, want = flat(all), ragged(seed, size, n)
		}
	case scatterV:
		var all [][]matrix
		for r := range size {
			all = append(all, vector(seed, r, n*r%97))
		}
		x, err = ScatterV(background, g, root, all)
		want = vector(seed, rank, n*rank%97)
	case allGatherV:
		all, e := AllGatherV(background, g, vector(seed, rank, n*rank%97))
		err, x, want = e, flat(all), ragged(seed, size, n)
	case allToAllV:
		var all [][]matrix
		for r := range size {
			all = append(all, vector(seed, rank*size+r, n*(r+rank)%97))
		}
		got, e := AllToAllV(background, g, all)
		err, x, want = e, flat(got), nil
		for r := range size {
			want = append(want, vector(seed, r*size+rank, n*(r+rank)%97)...)
		}
	}
	if err != nil {
		return err
	}
	return same(x, want)
}

func everything(seed uint64, size, n int) (all []matrix) {
	for r := range size {
		all = append(all, vector(seed, r, n)...)
	}
	return all
}

func ragged(seed uint64, size, n int) (all []matrix) {
	for r := range size {
		all = append(all, vector(seed, r, n*r%97)...)
	}
	return all
}

func flat(all [][]matrix) (x []matrix) {
	for _, part := range all {
		x = append(x, part...)
	}
	return x
}

func same(got, want []matrix) error {
	if len(got) != len(want) {
		return fmt.Errorf("%d elements, want %d", len(got), len(want))
	}
	for i := range got {
		if got[i] != want[i] {
			return fmt.Errorf("element %d of %d is %v, want %v", i, len(got), got[i], want[i])
		}
	}
	return nil
}
