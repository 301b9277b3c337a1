package progress

// Receives from any source, of all ranks or of those of a group. Matching goes by tag and mask
// alone; the group says whose loss ends the receive, which peers that are held up hear of it, and
// whether all of them send by the device with the tag list.

// Members is a set of ranks that does not change. Contains is called under the engine's lock.
type Members interface{ Contains(rank int) bool }

// sourceGroup is the ranks that a receive can come from.
type sourceGroup struct {
	members Members // nil: the place is free
	losses  losses  // of them
	foreign bool    // one of them sends by another device than that with the tag list
	single  int     // of its ranks below this none sends EAGERS
	reached bool    // see reachLocked
}

// Group returns the source of receives from any of these ranks, for Recv and Irecv. Tag and mask of
// such a receive must match messages of these ranks only. The engine must be connected to all
// ranks. It is valid until Callback.Forget.
func (e *Engine) Group(m Members) (src int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	g := sourceGroup{members: m}
	for i := range e.peers {
		if p := &e.peers[i]; m.Contains(i) {
			g.foreign = g.foreign || p.foreign
			if p.lost != nil {
				g.losses.unacked++
			}
		}
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
		*e.groupLocked(src) = sourceGroup{}
	}
}

// accepts tells whether a message of rank may be for this receive.
func (op *Op) accepts(rank int) bool { return op.e.accepts(op.peer, rank) }

// accepts tells whether a message of rank may be for a receive, or a probe, from src.
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
