package sim

import (
	"math/rand/v2"

	"github.com/tagmatch/tagmatch/progress"
)

// Members is a set of ranks: bit r is set for rank r.
type Members uint16

// Contains implements progress.Members.
func (m Members) Contains(rank int) bool { return m>>rank&1 != 0 }

// comm is a Comm: some ranks, and a context.
type comm struct {
	context int
	members Members
	source  map[int]int // by rank: the group that its receives from any of the members name
}

// openComms makes the plan's Comms, of those ranks that there are.
func (w *world) openComms() {
	for i, m := range w.plan.Params.Comms {
		c := &comm{context: 1 + i, members: m & (1<<w.size() - 1), source: map[int]int{}}
		w.comms = append(w.comms, c)
		for _, r := range w.ranks {
			if c.members.Contains(r.id) {
				c.source[r.id] = r.engine.Group(c.members)
			}
		}
	}
}

// commOf is the Comm of a step, nil for none; false where a rank of the step is not a member.
func (w *world) commOf(s *Step, r, peer *rank) (c *comm, ok bool) {
	if s.Comm == 0 || len(w.comms) == 0 {
		return nil, true
	}
	c = w.comms[(s.Comm-1)%len(w.comms)]
	return c, c.members.Contains(r.id) && c.members.Contains(peer.id)
}

// pattern is what a receive or a probe looks for, or where a send goes.
type pattern struct {
	peer      int     // destination; or source, progress.AnySource, or a group below that
	group     Members // of such a source
	tag, mask uint64
}

// pattern is what a step of rank r asks for.
func (w *world) pattern(r *rank, s *Step, peer *rank, c *comm) pattern {
	if s.sends() {
		return pattern{peer: peer.id, tag: s.tag(r.id, c)}
	}
	mask, anySource := s.bits(c)
	p := pattern{peer: peer.id, tag: s.tag(peer.id, c) & mask, mask: mask}
	switch {
	case anySource && c != nil:
		p.peer, p.group = c.source[r.id], c.members
	case anySource:
		p.peer = progress.AnySource
	}
	return p
}

// accepts reports whether a rank may be the source.
func (p *pattern) accepts(rank int) bool {
	switch {
	case p.fromGroup():
		return p.group.Contains(rank)
	case p.peer == progress.AnySource:
		return true
	}
	return p.peer == rank
}

// fromGroup reports whether any rank of a Comm may be the source.
func (p *pattern) fromGroup() bool { return p.peer < progress.AnySource }

// comms has some messages sent in Comms, and received from any of their ranks, of which some are
// lost. It has random numbers of its own, as probes.
func (g *generator) comms(rng *rand.Rand) {
	chance := func(p float64) bool { return rng.Float64() < p }
	if g.thrashes || !chance(0.3) {
		return
	}
	q := &g.p.Params
	for range 1 + rng.IntN(2) {
		m := Members(1) << rng.IntN(q.Ranks)
		for r := range q.Ranks {
			if chance(0.6) {
				m |= 1 << r
			}
		}
		q.Comms = append(q.Comms, m)
	}
	type message struct {
		from, to int
		tag      uint64
	}
	chosen := map[message]int{} // messages and their receives go to the same Comm
	for i := range g.p.Steps {
		s := &g.p.Steps[i]
		if !s.posts() {
			continue
		}
		m := message{s.Peer, s.Rank, s.Tag}
		if s.sends() {
			m = message{s.Rank, s.Peer, s.Tag}
		}
		n, ok := chosen[m]
		if !ok {
			n = rng.IntN(1 + len(q.Comms))
			chosen[m] = n
		}
		if n == 0 || !q.Comms[n-1].Contains(m.from) || !q.Comms[n-1].Contains(m.to) {
			continue
		}
		if s.Comm, s.Raw = n, false; !s.sends() && chance(0.4) {
			s.Mask = []Mask{MaskNumber, MaskAny}[rng.IntN(2)]
		}
	}
	if chance(0.25) {
		g.lose(rng)
	}
}

// lose has ranks lose each other, and acknowledge some losses, beside receives that wait.
func (g *generator) lose(rng *rand.Rand) {
	rank := func() int { return rng.IntN(g.p.Params.Ranks) }
	for range 1 + rng.IntN(2) {
		member := rank() // of a Comm, or nothing is posted
		recv := Step{Do: OpRecv, Rank: member, Peer: member, Comm: 1 + rng.IntN(len(g.p.Params.Comms)), Tag: g.numbers, Mask: MaskNumber, Size: 16}
		g.insert(rng, recv)
		g.insert(rng, Step{Do: []Op{OpBreak, OpBreak, OpKill}[rng.IntN(3)], Rank: rank(), Peer: rank()})
		g.insert(rng, Step{Do: OpAck, Rank: rank(), N: rng.IntN(3)})
	}
}

// insert adds a step somewhere.
func (g *generator) insert(rng *rand.Rand, s Step) {
	at := rng.IntN(1 + len(g.p.Steps))
	g.p.Steps = append(g.p.Steps, Step{})
	copy(g.p.Steps[at+1:], g.p.Steps[at:])
	g.p.Steps[at] = s
}
