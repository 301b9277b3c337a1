package progress

import "slices"

// Where a receive's message may come from: one rank, any rank, or any of a group. Matching goes by
// tag and mask alone; the group says whose loss ends the receive, which peers that are held up hear
// of it, and whether all of them send by the device with the tag list.

// Members is a set of ranks that does not change. Contains is called under the engine's lock.
type Members interface{ Contains(rank int) bool }

// allRanks is the Members of AnySource.
type allRanks struct{}

func (allRanks) Contains(int) bool { return true }

// sourceGroup is the ranks that a receive can come from.
type sourceGroup struct {
	members Members // nil: the place is free
	context uint64  // of a Group: in which no others send
	losses  losses  // of them
	foreign bool    // of a Group: one of them sends by another device than that with the tag list
	reached bool    // see reachLocked
}

// losses is what receives from any of some ranks know of those that are lost.
type losses struct {
	unacked int              // how many AckFailures has not been told of: they end such receives
	acked   map[int]struct{} // the others; nil while there are none
}

// ack has receives go on without a rank that is lost.
func (l *losses) ack(rank int) {
	if _, ok := l.acked[rank]; ok {
		return
	}
	if l.acked == nil {
		l.acked = map[int]struct{}{}
	}
	l.acked[rank] = struct{}{}
	l.unacked--
}

// sources is the groups, and the losses that end their receives. A source from AnySource downwards
// stands for a group, that of all ranks first.
type sources struct {
	groups []sourceGroup
	lowest int    // the source of the last group
	lost   []Loss // in order of loss
	size   int    // constant: how many ranks there are
}

func (s *sources) init(size int) {
	s.size = size
	s.add(sourceGroup{members: allRanks{}})
}

// add gives a group the first place that is free, and returns its source.
func (s *sources) add(g sourceGroup) (src int) {
	for i := range s.groups {
		if s.groups[i].members == nil {
			s.groups[i] = g
			return AnySource - i
		}
	}
	s.groups = append(s.groups, g)
	s.lowest = AnySource - (len(s.groups) - 1)
	return s.lowest
}

// group is what a source stands for; nil where that is one rank, or nothing.
func (s *sources) group(src int) *sourceGroup {
	if i := AnySource - src; i >= 0 && i < len(s.groups) && s.groups[i].members != nil {
		return &s.groups[i]
	}
	return nil
}

// accepts reports whether a message of rank may be for a receive, or a probe, from src.
func (s *sources) accepts(src, rank int) bool {
	if src >= AnySource {
		return src == rank || src == AnySource
	}
	g := s.group(src)
	return g != nil && g.members.Contains(rank)
}

// lose follows that a rank is lost.
func (s *sources) lose(rank int, cause error) {
	s.lost = append(s.lost, Loss{rank, cause})
	for i := range s.groups {
		if g := &s.groups[i]; g.members != nil && g.members.Contains(rank) {
			g.losses.unacked++
		}
	}
}

// Group returns the source of receives from any of these ranks, for Recv and Irecv. Tag and mask of
// such a receive must match messages of this context only, in which other ranks send nothing: a
// message of another one, also of one that is here already, is a violation. The engine must be
// connected to all ranks. The group is valid until Callback.Forget.
func (e *Engine) Group(context uint64, m Members) (src int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	g, size := sourceGroup{members: m, context: context}, 0
	for i := range e.peers {
		if m.Contains(i) {
			size++
			g.foreign = g.foreign || !e.off.covers(i)
			if e.peers.loss(i) != nil {
				g.losses.unacked++
			}
		}
	}
	if size != len(e.peers) {
		e.contexts.confine(context, m)
	}
	return e.sources.add(g)
}

// accepts reports whether a message of rank may be for this receive.
func (op *Op) accepts(rank int) bool { return op.e.sources.accepts(op.peer, rank) }

// unlisted counts a receive that has left the posted-receive queue. It is small enough to be
// inlined.
func (op *Op) unlisted() {
	if op.peer < 0 {
		op.e.fromAny--
	} else {
		op.e.peers[op.peer].from--
	}
}

// AckFailures lets receives from any rank of src, AnySource or a Group, go on without these ranks.
// Those that are not lost, or not of src, are ignored.
func (e *Engine) AckFailures(src int, ranks ...int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	g := e.sources.group(src)
	if g == nil {
		return
	}
	for _, r := range ranks {
		if r >= 0 && r < len(e.peers) && e.peers.loss(r) != nil && g.members.Contains(r) {
			g.losses.ack(r)
		}
	}
}

// check is the error of a receive from any of several ranks that cannot be posted. It names the
// lost ranks that were not passed to AckFailures.
func (s *sources) check(src int) error {
	g := s.group(src)
	switch {
	case g == nil:
		return unknownSource(src, s.size)
	case g.losses.unacked == 0:
		return nil
	}
	return s.lossOf(g.unacked)
}

// unacked reports whether the loss of a rank ends receives from this group.
func (g *sourceGroup) unacked(rank int) bool {
	_, acked := g.losses.acked[rank]
	return !acked && g.members.Contains(rank)
}

// lossOf is a *PeerError that names some of the ranks that are lost; nil where there are none.
func (s *sources) lossOf(which func(rank int) bool) error {
	var ranks []int
	var cause error
	for _, l := range s.lost {
		if which(l.Rank) {
			ranks, cause = append(ranks, l.Rank), l.Cause
		}
	}
	if ranks == nil {
		return nil
	}
	slices.Sort(ranks)
	return &PeerError{Ranks: ranks, Cause: cause}
}
