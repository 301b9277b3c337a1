package progress

import "math/bits"

// A context is a class of tags: those whose bits of Config.ContextMask are the same. The engine
// does not know what a context is for. It keeps one that a rank does not use any more free of
// messages, refuses messages from outside of one, and carries the notices by which the ranks agree
// when all of them are done with it (callback.go).

// contexts is what the engine knows of the contexts.
type contexts struct {
	owner Contexts // constant; nil: there are none
	mask  uint64   // constant, Config.ContextMask

	retired  map[uint64]error // those whose messages are discarded: why their receives end
	retiring []retiring       // of them, those with operations
	barred   map[uint64]error // those whose operations have ended, see Bar

	// confined is, by the number of a context, its members where not all ranks are; the last is
	// never nil. What others send there would match receives from any of these ranks: it is refused
	// when it arrives.
	confined []Members

	e *Engine // constant
}

// retiring is a context whose operations have not all ended.
type retiring struct {
	context uint64
	ops     []pendingOp
}

// pendingOp is an operation, or one that had the same memory later.
type pendingOp struct {
	op  *Op
	gen uint64
}

func (c *contexts) of(tag uint64) uint64 { return tag & c.mask }

// space is equal for tags that one receive could match: those of a context, whose highest bit is
// set, or all others.
func (c *contexts) space(tag uint64) uint64 {
	if tag>>63 == 0 {
		return 0
	}
	return c.of(tag)
}

// only reports whether a receive with this mask gets messages of one context only.
func (c *contexts) only(mask uint64) bool { return mask&c.mask == c.mask }

// refuses reports whether messages with this tag are discarded.
func (c *contexts) refuses(tag uint64) bool { return len(c.retired) != 0 && c.isRetired(tag) }

func (c *contexts) isRetired(tag uint64) bool {
	_, ok := c.retired[c.of(tag)]
	return ok
}

// closed is why receives of a retired context end, or nil.
func (c *contexts) closed(tag, mask uint64) error {
	if len(c.retired) == 0 || !c.only(mask) {
		return nil
	}
	return c.retired[c.of(tag)]
}

// tellIdle tells the owner of the contexts whose operations have ended.
func (c *contexts) tellIdle() {
	e, busy := c.e, c.retiring[:0]
	for _, r := range c.retiring {
		for len(r.ops) != 0 && !r.ops[0].op.UnderWay(r.ops[0].gen) {
			r.ops = r.ops[1:]
		}
		if len(r.ops) != 0 || e.broken != nil {
			busy = append(busy, r)
		} else {
			c.owner.Idle((*callback)(e), r.context)
		}
	}
	clear(c.retiring[len(busy):])
	c.retiring = busy
}

// number is the number of the context that a tag with the highest bit names.
func (c *contexts) number(tag uint64) int {
	return int(tag & c.mask << 1 >> 1 >> bits.TrailingZeros64(c.mask))
}

// allow says who sends in a context; nil: every rank.
func (c *contexts) allow(context uint64, m Members) {
	n, all := c.number(context), c.confined
	if m != nil && n >= len(all) {
		all = append(all, make([]Members, n+1-len(all))...)
	}
	if n < len(all) {
		all[n] = m
	}
	for len(all) != 0 && all[len(all)-1] == nil {
		all = all[:len(all)-1]
	}
	c.confined = all
}

// outside reports whether a rank is no member of the context that a tag names.
func (c *contexts) outside(rank int, tag uint64) bool {
	n := c.number(tag)
	return int64(tag) < 0 && n < len(c.confined) && c.confined[n] != nil && !c.confined[n].Contains(rank)
}

// intrudes refuses a message from outside of its context: its sender is lost.
func (p *peer) intrudes(tag uint64) bool {
	if !p.e.contexts.outside(p.rank, tag) {
		return false
	}
	p.lose(protocolError("rank %d sends tag %#x, of a Comm that it is no member of", p.rank, tag))
	return true
}

// confine lets only these ranks send in a context. Others that have sent there are lost, with what
// they have sent.
func (c *contexts) confine(context uint64, m Members) {
	e := c.e
	c.allow(context, m)
	var tags []uint64
	for u := range e.unexp.All() {
		if c.outside(int(u.Src), u.Tag) {
			tags = append(tags, u.Tag)
		}
	}
	for _, tag := range tags {
		if e.broken != nil {
			return // nobody receives any more
		}
		if u, ok := e.unexp.Match(tag, ^uint64(0)); ok { // a request goes with its sender
			p := e.peers[u.Src]
			p.drop(u)
			p.intrudes(tag)
			e.tr.Wake() // as in PeerLost
		}
	}
}

// refuse ends the receives of a context with cause, and discards its messages, for whose senders
// they were received. So it goes on until Callback.Reuse.
func (c *contexts) refuse(context uint64, cause error) {
	e := c.e
	if c.retired == nil {
		c.retired = map[uint64]error{}
	}
	c.retired[context], e.unusual = cause, true
	for _, op := range e.posted.All() {
		if c.only(op.mask) && c.of(op.tag) == context {
			op.fail(cause)
		}
	}
	for m, ok := e.unexp.Match(context, c.mask); ok; m, ok = e.unexp.Match(context, c.mask) {
		p, rndv, name := e.peers[m.Src], m.Rndv, m.Name
		p.drop(m)
		if rndv {
			p.fin(name)
		}
	}
}

// Retire ends this rank's use of a context. Its receives end with cause, as they would by Cancel,
// those too that lose their message later. Its sends go on. Messages that nobody has received are
// discarded, also those that arrive until Callback.Reuse: for their senders they were received.
// Contexts.Idle follows when what cannot be ended has ended.
func (e *Engine) Retire(context uint64, cause error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.broken != nil {
		return
	}
	c := &e.contexts
	c.refuse(context, cause)
	r := retiring{context: context}
	for op := range e.opsLocked() { // an abandoned read needs nothing of its sender
		if op.state != opPosted && op.state != opAbandoned && c.of(op.tag) == context {
			r.ops = append(r.ops, pendingOp{op, op.Gen()})
		}
	}
	c.retiring = append(c.retiring, r)
	c.tellIdle()
}
