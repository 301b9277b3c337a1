package contexts

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/testlevel"
)

// electing is some ranks that make Comms by ballots, as Shrink and NewComm of p2p do: several at
// once, of Comms and of meetings with other members. Few contexts are free.
type electing struct {
	m        *contextsModel
	suspects [][]int
	parts    []*elector
	deaths   int
}

// elector is a rank's part in one of them.
type elector struct {
	r       *modelRank
	comm    *Comm
	ballot  *Ballot // under way
	decided bool
	all     func() // all have come: it makes offers; to be called at the end
	over    bool
	context int // what it has got, or none
}

func newElecting(t *testing.T, seed uint64) *electing {
	m := newContextsModel(t, seed, 2+int(seed)%5)
	b := &electing{m: m, suspects: make([][]int, len(m.ranks)), deaths: m.rng.IntN(len(m.ranks))}
	for i := range 5 {
		members := m.rng.Perm(len(m.ranks))[:1+m.rng.IntN(len(m.ranks))]
		for _, world := range members {
			r := m.ranks[world]
			r.cs.free = Set{0: 0x3f << 16} // one more than are made
			c := &Comm{Context: 1 + i, ID: uint64(i+1) << 40, Group: order(members)}
			c.Suspect = func(world, _ int) { b.suspects[r.rank] = append(b.suspects[r.rank], world) }
			if i%2 == 0 {
				c.Context = Meeting(c.ID)
			} else {
				r.cs.Open(r, c)
			}
			b.parts = append(b.parts, &elector{r: r, comm: c, context: none})
		}
	}
	return b
}

// choices is what may happen next, but for deaths.
func (b *electing) choices() (list []func()) {
	for _, p := range b.parts {
		switch {
		case p.r.dead || p.over:
		case p.decided:
			list = append(list, p.goOn)
		case p.ballot == nil:
			list = append(list, p.vote)
		}
	}
	for _, r := range b.m.ranks {
		if r.dead {
			continue
		}
		for _, src := range b.m.ranks {
			if len(r.in[src.rank]) != 0 {
				list = append(list, func() { b.m.deliver(r, src.rank) })
			}
			if src.dead && !r.lost[src.rank] {
				list = append(list, func() { b.m.gone(r, src.rank) })
			}
		}
		for _, world := range b.suspects[r.rank] {
			if !r.lost[world] {
				list = append(list, func() { b.m.gone(r, world) })
			}
		}
	}
	return list
}

// vote begins a round, as Comm.elect of p2p does.
func (p *elector) vote() {
	p.ballot = &Ballot{}
	if p.all != nil {
		p.ballot.Free, p.ballot.Closing, p.ballot.Offers = p.r.cs.Offer(p.comm, nil)
	}
	p.r.cs.Meet(p.r, p.comm)
	p.r.cs.Vote(p.r, p.comm, *p.ballot, func() { p.decided = true })
}

// goOn ends a round.
func (p *elector) goOn() {
	d := p.r.cs.Decided(p.comm)
	if p.ballot.Offers {
		p.r.cs.TakeOnly(d.Context)
	}
	switch {
	case p.all == nil:
		p.all = p.r.cs.Ask(p.comm)
	case d.Context != none || d.Full:
		p.over, p.context = true, d.Context
		p.all()
	}
	p.ballot, p.decided = nil, false
}

// check requires that all that live have made each Comm, in the same context, and in one that none
// of its members has in another.
func (b *electing) check() {
	has := map[string]bool{}
	first := map[uint64]*elector{}
	for _, p := range b.parts {
		if p.r.dead {
			continue
		}
		require.True(b.m.t, p.over, "rank %d waits for ever in %x", p.r.rank, p.comm.ID)
		require.NotEqual(b.m.t, none, p.context)
		if o := first[p.comm.ID]; o != nil {
			require.Equal(b.m.t, o.context, p.context, "ranks %d and %d in %x", o.r.rank, p.r.rank, p.comm.ID)
		}
		first[p.comm.ID] = p
		key := fmt.Sprint(p.r.rank, p.context)
		require.False(b.m.t, has[key], "rank %d has context %d twice", p.r.rank, p.context)
		require.False(b.m.t, p.r.cs.free.has(p.context))
		has[key] = true
	}
}

// Several Comms are made at once while ranks die: each comes to its end.
func TestElecting(t *testing.T) {
	seeds := uint64(300)
	if testlevel.CI() {
		seeds = 3000
	}
	for seed := range seeds {
		ok := t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			b := newElecting(t, seed)
			list := b.choices()
			for steps := 0; len(list) != 0; steps++ {
				if steps == 1_000_000 {
					require.Fail(t, "it goes on for ever")
				}
				if b.deaths > 0 && b.m.rng.IntN(200) == 0 {
					b.deaths--
					b.m.ranks[b.m.rng.IntN(len(b.m.ranks))].dead = true
				} else {
					list[b.m.rng.IntN(len(list))]()
				}
				list = b.choices()
			}
			b.check()
		})
		if !ok {
			return
		}
	}
}
