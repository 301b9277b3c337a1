package benchkit

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/tagmatch/tagmatch/coll"
)

// Coll measures collective operations on float32, which sums add.
type Coll struct {
	Common
	Crowd
	Ops        []string
	Algorithms []string // beside the automatic choice
}

// NewColl has the defaults.
func NewColl() *Coll {
	c := &Coll{Crowd: Crowd{N: 2}}
	c.Sizes = Sizes{8, 4 << 10, 64 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20}
	for _, o := range collectives {
		c.Ops = append(c.Ops, o.name)
	}
	return c
}

// Register adds the flags.
func (c *Coll) Register(fs *flag.FlagSet) {
	c.Common.Register(fs)
	c.Crowd.Register(fs)
	words := func(list *[]string) func(string) error {
		return func(text string) error { *list = strings.Split(text, ","); return nil }
	}
	fs.Func("op", "`names` of operations, separated by commas; default all: "+strings.Join(c.Ops, ", "), words(&c.Ops))
	fs.Func("algorithms", "`names` of algorithms of one -op, which take turns with the automatic choice; one that there is not tells which there are", words(&c.Algorithms))
}

// Faults of the flags.
func (c *Coll) Faults() []error {
	errs := append(c.Common.Faults(), c.Crowd.Faults()...)
	for _, name := range c.Ops {
		if _, ok := collectiveOf(name); !ok {
			errs = append(errs, fmt.Errorf("-op: there is no operation %q (-h lists them)", name))
		}
	}
	for _, size := range c.Sizes {
		if size%4 != 0 {
			errs = append(errs, fmt.Errorf("-sizes has %d: elements are float32, give a multiple of 4 bytes", size))
		}
	}
	if len(c.Algorithms) > 0 && len(c.Ops) != 1 {
		errs = append(errs, fmt.Errorf("-algorithms is for one operation, and -op has %s", strings.Join(c.Ops, ",")))
	}
	return errs
}

// Ranks that measure are all.
func (c *Coll) Ranks() (started, measuring int) { return c.N, Everyone }

// Messages are calls.
func (c *Coll) Messages(size int, _ string) int { return min(max(256<<20/max(size, 1), 10), 10_000) }

// Run measures a size of all operations. A barrier has none, and is measured once.
func (c *Coll) Run(s *Session, size, iters int) error {
	for _, name := range c.Ops {
		o, _ := collectiveOf(name)
		if o.want == nil {
			if size != c.Sizes[0] {
				continue
			}
			size = 0
		}
		if err := c.measure(s, o, size, iters); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// collRounds are the rounds of a size, in each of which all algorithms have their turn.
const collRounds = 9

// measure has the algorithms take turns.
func (c *Coll) measure(s *Session, o collective, size, iters int) error {
	var list []*contender
	for _, name := range append([]string{"auto"}, c.Algorithms...) {
		a, err := newContender(s, o, name, size)
		if err != nil {
			return err
		}
		if err := a.verified(); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if _, err := a.round(warmUp(iters)); err != nil {
			return err
		}
		list = append(list, a)
	}
	rounds := min(collRounds, iters)
	for i := range rounds {
		for _, a := range list {
			n := iters*(i+1)/rounds - iters*i/rounds
			took, err := a.round(n)
			if err != nil {
				return err
			}
			a.elapsed += took
			a.rounds = append(a.rounds, us(took)/float64(n))
		}
	}
	for _, a := range list {
		if err := a.group.Close(); err != nil {
			return err
		}
		slices.Sort(a.rounds)
		r := s.Result("coll", size, iters, a.elapsed)
		r.What, r.Kind, r.Ranks, r.MBs, r.MsgS = o.name, a.algorithm, s.World.Size(), 0, 0
		r.CallUs, r.LeastUs = a.rounds[len(a.rounds)/2], a.rounds[0]
		if err := s.Report(r, nil); err != nil {
			return err
		}
	}
	return nil
}

// contender is an operation by one algorithm, with its vectors.
type contender struct {
	group     *coll.Group
	op        collective
	algorithm string
	// mine is a rank's block, or its vector; whole and other have a block for each rank.
	mine, whole, other []float32
	rounds             []float64 // microseconds a call in each
	elapsed            time.Duration
}

// newContender makes a Group, which reads in the environment what its algorithm is.
func newContender(s *Session, o collective, algorithm string, size int) (*contender, error) {
	before, rules := os.Getenv(coll.Environment), ""
	if algorithm != "auto" {
		rules = "," + o.name + ":" + algorithm
	}
	err := os.Setenv(coll.Environment, strings.Trim(before+rules, ","))
	if err != nil {
		return nil, err
	}
	g, err := coll.New(context.Background(), s.World.Comm())
	if err = errors.Join(err, os.Setenv(coll.Environment, before)); err != nil {
		return nil, err
	}
	a := &contender{group: g, op: o, algorithm: algorithm, mine: make([]float32, size/4)}
	if o.blocks {
		a.whole, a.other = make([]float32, g.Size()*len(a.mine)), make([]float32, g.Size()*len(a.mine))
	}
	return a, nil
}

// round calls n times and waits for all ranks. Each is the root in turn: none runs far ahead.
func (a *contender) round(n int) (time.Duration, error) {
	ctx, start := context.Background(), time.Now()
	for i := range n {
		if err := a.op.run(ctx, a, i%a.group.Size()); err != nil {
			return 0, err
		}
	}
	err := coll.Barrier(ctx, a.group)
	return time.Since(start), err
}

// operand is element i of the vector that a rank gives.
func operand(rank, i int) float32 { return float32(1 + rank + i%7) }

// total is element i of the sum of the first n ranks.
func total(n, i int) float32 { return float32(n*(n+1)/2 + n*(i%7)) }

// verified makes a call and checks its results. Operands are 0 from then on: sums do not grow.
func (a *contender) verified() error {
	rank := a.group.Rank()
	for _, v := range [][]float32{a.mine, a.whole} {
		for i := range v {
			v[i] = operand(rank, i)
		}
	}
	if err := a.op.run(context.Background(), a, 0); err != nil || a.op.want == nil {
		return err
	}
	var err error
	got, want := a.op.want(a)
	for i := range got {
		if x := want(i); got[i] != x && err == nil {
			err = fmt.Errorf("rank %d has %v in element %d of %d, want %v", rank, got[i], i, len(got), x)
		}
	}
	clear(a.mine)
	clear(a.whole)
	return err
}

// collective is an operation of package coll.
type collective struct {
	name   string
	blocks bool // there are vectors with a block for each rank
	run    func(ctx context.Context, a *contender, root int) error
	// want is what root 0 leaves, and its elements; nil: nothing.
	want func(a *contender) (got []float32, element func(i int) float32)
}

func collectiveOf(name string) (collective, bool) {
	i := slices.IndexFunc(collectives, func(o collective) bool { return o.name == name })
	if i < 0 {
		return collective{}, false
	}
	return collectives[i], true
}

var sum = coll.Sum[float32]()

var collectives = []collective{
	{"allreduce", false, func(ctx context.Context, a *contender, _ int) error {
		return coll.AllReduce(ctx, a.group, sum, a.mine)
	}, func(a *contender) ([]float32, func(int) float32) { return a.mine, a.sum }},
	{"bcast", false, func(ctx context.Context, a *contender, root int) error {
		return coll.Bcast(ctx, a.group, root, a.mine)
	}, func(a *contender) ([]float32, func(int) float32) {
		return a.mine, func(i int) float32 { return operand(0, i) }
	}},
	{"reduce", false, func(ctx context.Context, a *contender, root int) error {
		return coll.Reduce(ctx, a.group, root, sum, a.mine)
	}, func(a *contender) ([]float32, func(int) float32) { return a.atRoot(a.mine), a.sum }},
	{"reducescatter", true, func(ctx context.Context, a *contender, _ int) error {
		return coll.ReduceScatter(ctx, a.group, sum, a.mine, a.whole)
	}, func(a *contender) ([]float32, func(int) float32) {
		return a.mine, func(i int) float32 { return a.sum(a.first() + i) }
	}},
	{"allgather", true, func(ctx context.Context, a *contender, _ int) error {
		return coll.AllGather(ctx, a.group, a.whole, a.mine)
	}, func(a *contender) ([]float32, func(int) float32) { return a.whole, a.gathered }},
	{"alltoall", true, func(ctx context.Context, a *contender, _ int) error {
		return coll.AllToAll(ctx, a.group, a.other, a.whole)
	}, func(a *contender) ([]float32, func(int) float32) {
		n := len(a.mine)
		return a.other, func(i int) float32 { return operand(i/n, a.first()+i%n) }
	}},
	{"gather", true, func(ctx context.Context, a *contender, root int) error {
		return coll.Gather(ctx, a.group, root, a.whole, a.mine)
	}, func(a *contender) ([]float32, func(int) float32) { return a.atRoot(a.whole), a.gathered }},
	{"scatter", true, func(ctx context.Context, a *contender, root int) error {
		return coll.Scatter(ctx, a.group, root, a.mine, a.whole)
	}, func(a *contender) ([]float32, func(int) float32) {
		return a.mine, func(i int) float32 { return operand(0, a.first()+i) }
	}},
	{"scan", false, func(ctx context.Context, a *contender, _ int) error {
		return coll.Scan(ctx, a.group, sum, a.mine)
	}, func(a *contender) ([]float32, func(int) float32) {
		return a.mine, func(i int) float32 { return total(a.group.Rank()+1, i) }
	}},
	{"barrier", false, func(ctx context.Context, a *contender, _ int) error { return coll.Barrier(ctx, a.group) }, nil},
}

func (a *contender) sum(i int) float32 { return total(a.group.Size(), i) }

// gathered is element i of all ranks' blocks.
func (a *contender) gathered(i int) float32 { return operand(i/len(a.mine), i%len(a.mine)) }

// first is the index of this rank's block.
func (a *contender) first() int { return a.group.Rank() * len(a.mine) }

// atRoot is v where this rank is root 0.
func (a *contender) atRoot(v []float32) []float32 {
	if a.group.Rank() != 0 {
		return nil
	}
	return v
}
