package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/tagmatch/tagmatch/progress"
	"github.com/tagmatch/tagmatch/verbs"
)

// With Params.Unmet ranks connect when they first post to each other, in the midst of a plan. Then
// a rank does not learn by itself that one is lost which it has nothing to do with: as in a real
// job, the launcher tells it.

// acquaintance is what a rank has to do with another.
type acquaintance struct {
	posted bool // it has asked its transport for a connection
	begun  bool // its transport has begun one
	met    bool // it is connected
}

func (w *world) knows(rank, peer int) *acquaintance {
	k := w.known[[2]int{rank, peer}]
	if k == nil {
		k = &acquaintance{}
		w.known[[2]int{rank, peer}] = k
	}
	return k
}

func (s *spySink) Greeting(peer int) []byte {
	s.w.knows(s.id, peer).begun = true
	return s.Sink.Greeting(peer)
}

func (s *spySink) Connected(peer int, greeting []byte) error {
	own, theirs := s.w.knows(s.id, peer), s.w.knows(peer, s.id)
	own.met = true
	switch {
	case peer == s.id || !theirs.met || !s.w.plan.Params.Unmet:
	case own.posted && theirs.posted:
		s.w.cov[MetByBoth]++
	default:
		s.w.cov[MetByOne]++
	}
	return s.Sink.Connected(peer, greeting)
}

// refuses reports whether a post to a peer is to be refused. One that begins a connection is not:
// the engine would wait for that.
func (s *spy) refuses(peer int) bool {
	if k := s.dice.w.knows(s.id, peer); !k.met {
		k.posted = true
		return false
	}
	return s.dice.refuses()
}

// countLoss counts how a link ends, as a transport reports it.
func (w *world) countLoss(id, peer int, err error) {
	k := w.knows(id, peer)
	told := strings.Contains(err.Error(), "has given up its connection")
	switch {
	case strings.Contains(err.Error(), "has given it up"):
		w.cov[Refused]++
	case told:
		w.cov[EndTold]++
	case k.begun && !k.met:
		w.cov[EndedMidway]++
	}
}

// lose has the launcher tell a rank that another is lost, whether it is or not.
func (w *world) lose(r, peer *rank) {
	if r == peer || slices.Contains(r.engine.Failed(), peer.id) {
		return
	}
	if !w.knows(r.id, peer.id).begun {
		w.cov[LostBeforeMet]++
	}
	if !peer.dead {
		w.cut[pair(r.id, peer.id)] = true
	}
	r.engine.PeerLost(peer.id, fmt.Errorf("the launcher says so: %w", verbs.ErrPeerEnded))
	w.polled(r)
}

// news has the launcher tell all ranks what their transports need not have found.
func (w *world) news() {
	for _, r := range w.ranks {
		for _, p := range w.ranks {
			if w.plan.Params.Unmet && !r.dead && p.dead {
				w.lose(r, p)
			}
		}
	}
	if w.plan.Params.Unmet && w.aborted() {
		for _, r := range w.ranks {
			if !r.dead {
				r.engine.Abort(fmt.Errorf("%w: the launcher says so", progress.ErrAborted))
				w.harvest(r)
			}
		}
	}
}

// meet has ranks connect in the midst of the plan, of which some lose each other just then. It has
// random numbers of its own, as probes.
func (g *generator) meet(rng *rand.Rand) {
	chance := func(p float64) bool { return rng.Float64() < p }
	if g.thrashes || g.cuts || !chance(0.4) {
		return
	}
	q := &g.p.Params
	q.Unmet = true
	for chance(0.4) {
		a := rng.IntN(q.Ranks)
		b := (a + 1 + rng.IntN(q.Ranks-1)) % q.Ranks
		steps := []Step{{Do: OpSend, Rank: a, Peer: b, Tag: 1, Size: rng.IntN(100)}}
		if chance(0.5) {
			steps = append(steps, Step{Do: OpSend, Rank: b, Peer: a, Tag: 1, Size: rng.IntN(100)})
		}
		for range rng.IntN(8) {
			steps = append(steps, Step{Do: []Op{OpPoll, OpPoll, OpStep}[rng.IntN(3)], Rank: []int{a, b}[rng.IntN(2)], N: 1})
		}
		if chance(0.7) {
			steps = append(steps, Step{Do: []Op{OpBreak, OpBreak, OpLose, OpLose, OpKill}[rng.IntN(5)], Rank: b, Peer: a})
		}
		at := rng.IntN(min(len(g.p.Steps), 6) + 1)
		g.p.Steps = slices.Insert(g.p.Steps, at, steps...)
	}
}
