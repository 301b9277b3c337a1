package transporttest

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/testlevel"
	"github.com/tagmatch/tagmatch/transport"
)

// player sends a random sequence to each peer, from its own goroutine, while it receives theirs.
type player struct {
	*rank
	size   int
	rng    *rand.Rand
	count  int
	posted []int
}

// script returns what src sends to dst: both ends compute it.
func script(seed uint64, src, dst, count int, caps transport.Caps) []Event {
	rng := rand.New(rand.NewPCG(seed, uint64(src<<16|dst)))
	out := make([]Event, count)
	for i := range out {
		out[i] = randomMessage(rng, src, caps)
	}
	return out
}

func (p *player) play(finished *atomic.Int32, scripts func(src, dst int) []Event) error {
	p.posted = make([]int, p.size)
	var stall testlevel.Stall
	told := false
	for turn := 0; int(finished.Load()) < p.size; turn++ {
		if turn%256 == 255 {
			runtime.Gosched()
			if !told && stall.Lasts(patience, sum(p.posted)+len(p.Events)) {
				return fmt.Errorf("rank %d: nothing happens for %v: sent %v, %d events", p.n, patience, p.posted, len(p.Events))
			}
		}
		if to := p.rng.IntN(p.size); p.posted[to] < p.count {
			switch err := send(p, to, scripts(p.n, to)[p.posted[to]]); err {
			case nil:
				p.posted[to]++
			case transport.ErrAgain:
			default:
				return err
			}
		}
		if _, err := p.Poll(); err != nil {
			return err
		}
		if !told && p.done() && p.Drained() {
			told = true
			finished.Add(1)
		}
	}
	return nil
}

func sum(list []int) (all int) {
	for _, n := range list {
		all += n
	}
	return all
}

func (p *player) done() bool {
	for _, n := range p.posted {
		if n < p.count {
			return false
		}
	}
	return len(p.Events) == p.size*p.count
}

func testConcurrent(t *testing.T, h Harness, opts Options) {
	const n, count = 3, 300
	opts.SRQDepth, opts.SendDepth = 16, 32
	c := h.start(t, n, opts)
	all := map[[2]int][]Event{}
	for a := range n {
		for b := range n {
			all[[2]int{a, b}] = script(opts.Seed, a, b, count, c.ranks[0].Caps())
		}
	}
	var wg sync.WaitGroup
	var finished atomic.Int32
	errs := make([]error, n)
	for i, r := range c.ranks {
		p := &player{rank: r, size: n, count: count, rng: rand.New(rand.NewPCG(opts.Seed, uint64(i)))}
		wg.Go(func() {
			errs[i] = p.play(&finished, func(src, dst int) []Event { return all[[2]int{src, dst}] })
			if errs[i] != nil {
				finished.Add(n)
			}
		})
	}
	wg.Wait()
	for i, err := range errs {
		require.NoError(t, err, "rank %d", i)
	}
	for pair, want := range all {
		c.requireMessages(c.ranks[pair[1]], pair[0], want)
	}
}
