package progress

import "math/bits"

// Receives from any source, of all ranks or of those of a group. Matching goes by tag and mask
// alone; the group says whose loss ends the receive, which peers that are held up hear of it, and
// whether all of them send by the device with the tag list.

// Members is a set of ranks that does not change. Contains is called under the engine's lock.
type Members interface{ Contains(rank int) bool }

// sourceGroup is the ranks that a receive can come from.
type sourceGroup struct {
	members Members // nil: the place is free
	context uint64  // in which no others send
	losses  losses  // of them
	foreign bool    // one of them sends by another device than that with the tag list
	reached bool    // see reachLocked
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
		if p := &e.peers[i]; m.Contains(i) {
			size++
			g.foreign = g.foreign || p.foreign
			if p.lost != nil {
				g.losses.unacked++
			}
		}
	}
	if size != len(e.peers) {
		e.confineLocked(context, m)
	}
	for i := range e.groups {
		if e.groups[i].members == nil {
			e.groups[i] = g
			return groupSource(i)
		}
	}
	e.groups = append(e.groups, g)
	e.lowest = groupSource(len(e.groups) - 1)
	return e.lowest
}

// groupSource is the source that stands for group i. Those below AnySource are groups.
func groupSource(i int) int { return AnySource - 1 - i }

// groupLocked is the group that a source below AnySource stands for, or nil.
func (e *Engine) groupLocked(src int) *sourceGroup {
	if i := AnySource - 1 - src; i < len(e.groups) && e.groups[i].members != nil {
		return &e.groups[i]
	}
	return nil
}

// forgetGroupLocked ends the life of a group that no receive names any more.
func (e *Engine) forgetGroupLocked(src int) {
	if src < AnySource {
		g := e.groupLocked(src)
		e.confined.set(e.numberOf(g.context), nil)
		*g = sourceGroup{}
	}
}

// confined is, by the number of a context, its members where not all ranks are. What others send
// there would match receives from any of these ranks: it is refused when it arrives.
type confined []Members

// set changes one element. The last is never nil.
func (c *confined) set(number int, m Members) {
	if m != nil && number >= len(*c) {
		*c = append(*c, make([]Members, number+1-len(*c))...)
	}
	if number < len(*c) {
		(*c)[number] = m
	}
	for len(*c) != 0 && (*c)[len(*c)-1] == nil {
		*c = (*c)[:len(*c)-1]
	}
}

// numberOf is the number of the context that a tag with the highest bit names.
func (e *Engine) numberOf(tag uint64) int {
	return int(tag & e.cfg.ContextMask << 1 >> 1 >> bits.TrailingZeros64(e.cfg.ContextMask))
}

// outside reports whether a rank is no member of the context that a tag names.
func (e *Engine) outside(rank int, tag uint64) bool {
	n := e.numberOf(tag)
	return int64(tag) < 0 && n < len(e.confined) && e.confined[n] != nil && !e.confined[n].Contains(rank)
}

// intrudes refuses a message from outside of its context: its sender is lost.
func (p *peer) intrudes(tag uint64) bool {
	if !p.e.outside(p.rank, tag) {
		return false
	}
	p.lose(protocolError("rank %d sends tag %#x, of a Comm that it is no member of", p.rank, tag))
	return true
}

// confineLocked lets only these ranks send in a context. Others that have sent there are lost, with
// what they have sent.
func (e *Engine) confineLocked(context uint64, m Members) {
	e.confined.set(e.numberOf(context), m)
	var tags []uint64
	for u := range e.unexp.All() {
		if e.outside(int(u.Src), u.Tag) {
			tags = append(tags, u.Tag)
		}
	}
	for _, tag := range tags {
		if e.broken != nil {
			return // nobody receives any more
		}
		if u, ok := e.unexp.Match(tag, ^uint64(0)); ok { // a request goes with its sender
			p := &e.peers[u.Src]
			e.dropLocked(u)
			p.intrudes(tag)
			e.tr.Wake() // as in PeerLost
		}
	}
}

// accepts reports whether a message of rank may be for this receive.
func (op *Op) accepts(rank int) bool { return op.e.accepts(op.peer, rank) }

// accepts reports whether a message of rank may be for a receive, or a probe, from src.
func (e *Engine) accepts(src, rank int) bool {
	if src >= AnySource {
		return src == rank || src == AnySource
	}
	g := e.groupLocked(src)
	return g != nil && g.members.Contains(rank)
}

// fromIndex is where Engine.from counts a receive: those from any source at 0.
func (op *Op) fromIndex() int { return max(1+op.peer, 0) }

// losses is what receives from any of some ranks know of those that are lost.
type losses struct {
	unacked int              // how many AckFailures has not been told of: they end such receives
	acked   map[int]struct{} // the others; nil while there are none
}

// lossesLocked is the losses of a source that stands for several ranks; nil: it is none.
func (e *Engine) lossesLocked(src int) *losses {
	if src == AnySource {
		return &e.losses
	}
	if g := e.groupLocked(src); g != nil {
		return &g.losses
	}
	return nil
}

// newLossLocked counts a rank that is lost.
func (e *Engine) newLossLocked(rank int) {
	e.losses.unacked++
	for i := range e.groups {
		if g := &e.groups[i]; g.members != nil && g.members.Contains(rank) {
			g.losses.unacked++
		}
	}
}

// AckFailures lets receives from any rank of src, AnySource or a Group, go on without these ranks.
// Those that are not lost, or not of src, are ignored.
func (e *Engine) AckFailures(src int, ranks ...int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	l := e.lossesLocked(src)
	if l == nil {
		return
	}
	for _, r := range ranks {
		if r < 0 || r >= len(e.peers) || e.peers[r].lost == nil || !e.accepts(src, r) {
			continue
		}
		if _, ok := l.acked[r]; ok {
			continue
		}
		if l.acked == nil {
			l.acked = map[int]struct{}{}
		}
		l.acked[r] = struct{}{}
		l.unacked--
	}
}

// checkLossesLocked is the error of a receive from any of several ranks that cannot be posted. It
// names the lost ranks that were not passed to AckFailures.
func (e *Engine) checkLossesLocked(src int) error {
	l := e.lossesLocked(src)
	switch {
	case l == nil:
		return unknownSource(src, len(e.peers))
	case l.unacked == 0:
		return nil
	}
	return e.lossOfLocked(func(rank int) bool {
		_, acked := l.acked[rank]
		return !acked && e.accepts(src, rank)
	})
}
