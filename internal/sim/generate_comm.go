package sim

import (
	"math/rand/v2"
	"slices"
)

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
	if chance(0.5) {
		g.close(rng)
	}
}

// close has ranks close Comms, soon after each other or not, and make them again.
func (g *generator) close(rng *rand.Rand) {
	for i, m := range g.p.Params.Comms {
		for range 1 + rng.IntN(3) {
			at, spread := rng.IntN(1+len(g.p.Steps)), rng.IntN(2)*rng.IntN(8)
			for _, n := range rng.Perm(m.Size()) {
				at = g.put(at, Step{Do: OpClose, Rank: m.World(n), Comm: 1 + i})
				at = g.put(at, Step{Do: []Op{OpPoll, OpStep}[rng.IntN(2)], Rank: m.World(rng.IntN(m.Size())), N: rng.IntN(6)})
				at = min(at+rng.IntN(1+spread), len(g.p.Steps))
			}
			g.put(at, Step{Do: OpOpen, Comm: 1 + i})
		}
	}
}

// lose has ranks lose each other, and acknowledge some losses in some Comm, between receives of all
// Comms: those of one Comm must not miss what was acknowledged in another.
func (g *generator) lose(rng *rand.Rand) {
	rank := func() int { return rng.IntN(g.p.Params.Ranks) }
	for range 1 + rng.IntN(2) {
		member := rank() // of a Comm, or nothing is posted there
		at := rng.IntN(1 + len(g.p.Steps))
		for range 3 {
			for _, n := range rng.Perm(1 + len(g.p.Params.Comms)) {
				recv := Step{Do: OpRecv, Rank: member, Peer: member, Comm: n, Tag: g.numbers, Mask: MaskNumber, Size: 16}
				at = min(g.put(at, recv)+rng.IntN(2), len(g.p.Steps))
			}
			at = g.put(at, Step{Do: []Op{OpBreak, OpBreak, OpKill}[rng.IntN(3)], Rank: rank(), Peer: rank()})
			at = g.put(at, Step{Do: OpPoll, Rank: member, N: rng.IntN(6)})
			at = g.put(at, Step{Do: OpAck, Rank: member, Comm: rng.IntN(1 + len(g.p.Params.Comms)), N: rng.IntN(3)})
		}
	}
}

// put inserts a step, and returns the index behind it.
func (g *generator) put(at int, s Step) (next int) {
	g.p.Steps = slices.Insert(g.p.Steps, at, s)
	return at + 1
}
