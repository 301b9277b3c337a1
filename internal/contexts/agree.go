package contexts

import (
	"slices"
)

// Free is the contexts that are free here.
func (cs *Contexts) Free() Set {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	return cs.free
}

// Offer is what a rank can say in one round of an agreement: which contexts are free here, and
// which will be without anything that the program does, if the other members of a Comm can say the
// same. The set of free contexts is lent to one Comm at a time, the one with the lowest context of
// those that agree here; ok reports whether that is this one.
func (cs *Contexts) Offer(c *Comm, lost []int) (free, closing Set, ok bool) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if cs.holder != none || slices.Min(cs.asking) != c.Context {
		return free, closing, false
	}
	cs.holder = c.Context
	closing = cs.free
	for context, l := range cs.live {
		if l.stage != inUse && l.stage != kept && !l.dropped && cs.within(l.comm.Group, c.Group) && !slices.ContainsFunc(lost, l.comm.Group.Contains) {
			closing.set(context, true)
		}
	}
	return cs.free, closing, true
}

// Ask has a Comm wait for its turn in Offer, until done.
func (cs *Contexts) Ask(c *Comm) (done func()) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	cs.asking = append(cs.asking, c.Context)
	return func() {
		cs.mu.Lock()
		defer cs.mu.Unlock()
		cs.asking = slices.DeleteFunc(cs.asking, func(context int) bool { return context == c.Context })
	}
}

// Take ends what Offer began: the first of these contexts, if there is one, is not free any more.
func (cs *Contexts) Take(from Set) (context int, ok bool) {
	context = from.first()
	if cs.TakeOnly(context); context == none {
		return 0, false
	}
	return context, true
}

// TakeOnly is Take of one context that is free, or of none.
func (cs *Contexts) TakeOnly(context int) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if cs.holder = none; context != none {
		cs.free.set(context, false)
	}
}

// within reports whether all members of a group are members of outer too.
func (cs *Contexts) within(g, outer Group) bool {
	if outer.Size() == cs.size {
		return true
	}
	for rank := range g.Size() {
		if !outer.Contains(g.World(rank)) {
			return false
		}
	}
	return true
}
