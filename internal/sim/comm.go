package sim

import (
	"errors"
	"math/bits"
	"slices"

	"github.com/tagmatch/tagmatch/internal/contexts"
	"github.com/tagmatch/tagmatch/progress"
)

// Members is a set of ranks: bit r is set for rank r.
type Members uint16

// Members are a contexts.Group, in the order of their ranks.

func (m Members) Contains(rank int) bool { return m>>rank&1 != 0 }
func (m Members) Size() int              { return bits.OnesCount16(uint16(m)) }
func (m Members) World(rank int) int {
	for range rank {
		m &= m - 1
	}
	return bits.TrailingZeros16(uint16(m))
}

// comm is a Comm: some ranks, and a context that no other has at the same time. Its tags have its
// number too, by which a message shows what Comm it was sent in.
type comm struct {
	number  int
	context int
	members Members
	closed  Members // those that have closed it
	source  [maxRanks]int
}

// openComms makes the plan's Comms, of those ranks that there are.
func (w *world) openComms() {
	w.comms = make([]*comm, len(w.plan.Params.Comms))
	for i := range w.comms {
		w.openComm(i)
	}
}

// openComm makes the i-th Comm of the plan. Its ranks take the first context that is free on all of
// them, all at once.
func (w *world) openComm(i int) {
	c := &comm{number: len(w.opened), members: w.plan.Params.Comms[i] & (1<<w.size() - 1)}
	w.comms[i], w.opened = c, append(w.opened, c)
	var free contexts.Set
	for k := range free {
		free[k] = ^uint64(0)
	}
	members := w.membersOf(c)
	for _, r := range members {
		for k, word := range r.contexts.Free() {
			free[k] &= word
		}
	}
	for _, r := range members {
		c.context, _ = r.contexts.Take(free)
		c.source[r.id] = r.engine.Group(contexts.Base(c.context), c.members)
		r.contexts.Open(nil, &contexts.Comm{Context: c.context, Group: c.members, Source: c.source[r.id]})
		if old := r.comms[c.context]; old != nil {
			w.cov[Reused]++
		}
		r.comms[c.context] = c
	}
}

func (w *world) membersOf(c *comm) (list []*rank) {
	for _, r := range w.ranks {
		if c.members.Contains(r.id) {
			list = append(list, r)
		}
	}
	return list
}

// reopen makes the i-th Comm of the plan again, if all ranks have closed the one before and none of
// them has lost another.
func (w *world) reopen(i int) {
	c := w.comms[i]
	if c.closed != c.members || w.apartWithin(c) {
		return
	}
	w.openComm(i)
}

func (w *world) apartWithin(c *comm) bool {
	return slices.ContainsFunc(w.membersOf(c), func(r *rank) bool { return w.apartFromMembers(c, r.id) })
}

// apartFromMembers reports whether a rank has lost a member, or is lost.
func (w *world) apartFromMembers(c *comm, id int) bool {
	return slices.ContainsFunc(w.membersOf(c), func(p *rank) bool { return w.apart(id, p.id) })
}

// cutWithin reports whether a rank and a member, which both live, have lost each other.
func (w *world) cutWithin(c *comm, id int) bool {
	return !w.ranks[id].dead && slices.ContainsFunc(w.membersOf(c), func(p *rank) bool { return !p.dead && w.apart(id, p.id) })
}

// errRetired ends the receives of a Comm that is closed.
var errRetired = errors.New("the Comm is closed")

// closeComm ends a rank's use of a Comm.
func (w *world) closeComm(r *rank, c *comm) {
	c.closed |= 1 << r.id
	w.cov[Retires]++
	for _, o := range r.active {
		if o.comm == c && (o.isRecv() || o.look) {
			r.leave(o)
		}
	}
	_ = r.engine.Call(func(e progress.Callback) { r.contexts.Close(e, &contexts.Comm{Context: c.context}, false) })
	r.engine.Retire(contexts.Base(c.context), errRetired)
}

// retire closes all Comms. Their contexts must become free then, except where those who are to say
// so have lost each other.
func (w *world) retire() error {
	if len(w.opened) == 0 {
		return nil
	}
	for _, c := range w.comms {
		for _, r := range w.membersOf(c) {
			if !r.dead && !c.closed.Contains(r.id) {
				w.closeComm(r, c)
			}
		}
	}
	if err := w.rest(); err != nil {
		return err
	}
	if err := w.checkLosses(); err != nil {
		return err
	}
	for _, c := range w.opened {
		if err := w.checkFree(c); err != nil {
			return err
		}
	}
	return nil
}

// checkFree checks that the context of a Comm which all ranks have closed is free, unless the first
// of them is lost, or two that live have lost each other.
func (w *world) checkFree(c *comm) error {
	if c.members == 0 || w.aborted() {
		return nil
	}
	root := c.members.World(0)
	var lost bool
	for _, r := range w.membersOf(c) {
		lost = lost || r.dead
		if w.ranks[root].dead || w.cutWithin(c, r.id) {
			return nil
		}
	}
	for _, r := range w.membersOf(c) {
		switch {
		case r.dead:
		case r.comms[c.context] == c && !r.free(c.context):
			return fail("retire", "rank %d: context %d of Comm %d is not free, which all have closed", r.id, c.context, c.number)
		case lost:
			w.cov[FreeBesideLoss]++
		}
	}
	return nil
}

func (r *rank) free(context int) bool {
	return r.contexts.Free()[context/64]>>(context%64)&1 != 0
}

// arrives checks a message that arrives: it must be of a Comm whose context is not free, unless it
// is of a rank that is lost, of which nothing is heard.
func (w *world) arrives(id, src int, tag uint64) {
	context := int(tag &^ packedBit >> contextShift)
	if tag&packedBit == 0 || context == contexts.World || w.ranks[id].lost.Contains(src) {
		return
	}
	r, number := w.ranks[id], int(tag&numberBits>>commShift)
	if c := r.comms[context]; c == nil || c.number != number || r.free(context) {
		panic(fail("late message", "rank %d gets a message of Comm %d from rank %d: context %d is free, or that of another Comm", id, number, src, context))
	}
	if w.opened[number].closed.Contains(id) {
		w.cov[LateMessages]++
	}
}

// retired reports whether a rank has closed the Comm of an operation: its messages may be
// discarded there.
func (p *pattern) retired(rank int) bool { return p.comm != nil && p.comm.closed.Contains(rank) }

// commOf is the Comm of a step, nil for none; false where a rank of the step cannot use it.
func (w *world) commOf(s *Step, r, peer *rank) (c *comm, ok bool) {
	if s.Comm == 0 || len(w.comms) == 0 {
		return nil, s.Do != OpClose && s.Do != OpOpen
	}
	c = w.comms[(s.Comm-1)%len(w.comms)]
	switch {
	case s.Do == OpOpen:
		return c, true
	case s.Do == OpClose, s.Do == OpAck:
		peer = r
	}
	return c, c.members.Contains(r.id) && c.members.Contains(peer.id) && !c.closed.Contains(r.id)
}

// pattern is what a receive or a probe looks for, or where a send goes.
type pattern struct {
	peer      int   // destination; or source, progress.AnySource, or a group below that
	comm      *comm // nil: none
	tag, mask uint64
}

// pattern is what a step of rank r asks for.
func (w *world) pattern(r *rank, s *Step, peer *rank, c *comm) pattern {
	if s.sends() {
		return pattern{peer: peer.id, comm: c, tag: s.tag(r.id, c)}
	}
	mask, anySource := s.bits(c)
	p := pattern{peer: peer.id, comm: c, tag: s.tag(peer.id, c) & mask, mask: mask}
	switch {
	case anySource && c != nil:
		p.peer = c.source[r.id]
	case anySource:
		p.peer = progress.AnySource
	}
	return p
}

// accepts reports whether a rank may be the source.
func (p *pattern) accepts(rank int) bool {
	switch {
	case p.fromGroup():
		return p.comm.members.Contains(rank)
	case p.peer == progress.AnySource:
		return true
	}
	return p.peer == rank
}

// fromGroup reports whether any rank of a Comm may be the source.
func (p *pattern) fromGroup() bool { return p.peer < progress.AnySource }
