package progress

// A context is a class of tags: those whose bits of Config.ContextMask are the same. The engine
// does not know what a context is for. It keeps one that a rank does not use any more free of
// messages, and carries the notices by which the ranks agree when all of them are done with it.

// Contexts is the owner of the contexts. The engine calls it under its lock: it must not block, and
// uses the engine through the Callback alone.
type Contexts interface {
	// Notice takes a notice of rank src; body is lent. Notices and messages of one rank come in the
	// order of sending: messages that were sent before are matched or among the unexpected ones. An
	// error says how src has broken the protocol, and ends the connection.
	Notice(c Callback, src int, body []byte) error
	// Idle is called once for each Retire, when nothing of the context is under way here any more.
	Idle(c Callback, context uint64)
	// Gone tells that a rank is lost.
	Gone(c Callback, rank int)
}

// Callback is the engine as Contexts sees it, during a call of Contexts only.
type Callback interface {
	// Notice sends a notice, of MaxNotice bytes at most. One to a rank that is lost goes nowhere.
	Notice(dst int, body []byte)
	// Answer is Notice for what dst has asked for. It returns false, and sends nothing, where an
	// answer whose first AnswerKey bytes are the same still waits for room: dst has asked again
	// and does not read.
	Answer(dst int, body []byte) bool
	MaxNotice() int
	// Reached reports whether this rank has ever sent a tagged message to a rank.
	Reached(rank int) bool
	// Lost reports whether a rank is lost. Nothing is heard of it any more then.
	Lost(rank int) bool
	// Reach connects to a rank whose loss nobody else would tell of, see ReachAwaited.
	Reach(rank int)
	// Reuse ends what Retire began: messages of the context are kept again.
	Reuse(context uint64)
	// Forget ends the life of a source that Group has returned; no operation names it any more.
	Forget(src int)
}

// AnswerKey is how many bytes of an answer say what it answers.
const AnswerKey = 4

// callback is the Callback of an engine.
type callback Engine

func (c *callback) Notice(dst int, body []byte) {
	c.peers[dst].sendCtrl(ctrl{kind: ctrlNotice, body: body})
}
func (c *callback) Answer(dst int, body []byte) bool {
	return c.peers[dst].reply(ctrl{kind: ctrlNotice, body: body}, AnswerKey)
}
func (c *callback) MaxNotice() int        { return c.caps.MaxCtrl - ctrlLen }
func (c *callback) Reached(rank int) bool { return c.peers[rank].out.Charged() != 0 }
func (c *callback) Lost(rank int) bool    { return c.peers[rank].lost != nil }
func (c *callback) Reach(rank int) {
	if c.reaches {
		c.peers[rank].reach()
		c.tr.Wake() // as in ReachAwaited
	}
}
func (c *callback) Reuse(context uint64) { delete(c.retired, context) }
func (c *callback) Forget(src int)       { (*Engine)(c).forgetGroupLocked(src) }

// Call calls f as Contexts is called, unless the engine has ended: then it returns the cause.
func (e *Engine) Call(f func(Callback)) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.broken == nil {
		f((*callback)(e))
		e.leaveLocked()
	}
	return e.broken
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

// Retire is called when this rank uses a context no more. Its receives end with cause, as they
// would by Cancel, those too that lose their message later. Its sends go on. Messages that nobody
// has received are discarded, also those that arrive until Callback.Reuse: for their senders they
// were received. Contexts.Idle is called when what cannot be ended has ended.
func (e *Engine) Retire(context uint64, cause error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.broken != nil {
		return
	}
	if e.retired == nil {
		e.retired = map[uint64]error{}
	}
	e.retired[context], e.unusual = cause, true
	e.failReceivesLocked(func(op *Op) bool { return e.inOneContext(op.mask) && e.contextOf(op.tag) == context }, cause)
	for m, ok := e.unexp.Match(context, e.cfg.ContextMask); ok; m, ok = e.unexp.Match(context, e.cfg.ContextMask) {
		p, rndv, name := &e.peers[m.Src], m.Rndv, m.Name
		e.dropLocked(m)
		if rndv {
			p.fin(name)
		}
	}
	e.retiring = append(e.retiring, retiring{context, e.pendingLocked(context)})
	e.idleLocked()
}

func (e *Engine) contextOf(tag uint64) uint64 { return tag & e.cfg.ContextMask }

// pendingLocked lists the operations of a context that have not ended: its receives are not posted
// any more. An abandoned read needs nothing of its sender.
func (e *Engine) pendingLocked(context uint64) (list []pendingOp) {
	add := func(op *Op) {
		if op != nil && op.state != opAbandoned && e.contextOf(op.tag) == context {
			list = append(list, pendingOp{op, op.Gen()})
		}
	}
	for i := range e.peers {
		for op := range e.peers[i].out.Sends() {
			add(op)
		}
	}
	for _, t := range e.tables() {
		for i := range t.entries {
			add(t.entries[i].op)
		}
	}
	return list
}

// idleLocked tells of the contexts whose operations have ended.
func (e *Engine) idleLocked() {
	busy := e.retiring[:0]
	for _, r := range e.retiring {
		for len(r.ops) != 0 && !r.ops[0].op.UnderWay(r.ops[0].gen) {
			r.ops = r.ops[1:]
		}
		if len(r.ops) != 0 || e.broken != nil {
			busy = append(busy, r)
		} else {
			e.cfg.Contexts.Idle((*callback)(e), r.context)
		}
	}
	clear(e.retiring[len(busy):])
	e.retiring = busy
}

// spaceOf is equal for tags that one receive could match: those of a context, whose highest bit is
// set, or all others.
func (e *Engine) spaceOf(tag uint64) uint64 {
	if tag>>63 == 0 {
		return 0
	}
	return e.contextOf(tag)
}

// refuses reports whether messages with this tag are discarded.
func (e *Engine) refuses(tag uint64) bool { return len(e.retired) != 0 && e.refusesContext(tag) }

func (e *Engine) refusesContext(tag uint64) bool {
	_, ok := e.retired[e.contextOf(tag)]
	return ok
}

// inOneContext reports whether a receive with this mask gets messages of one context only.
func (e *Engine) inOneContext(mask uint64) bool {
	return mask&e.cfg.ContextMask == e.cfg.ContextMask
}

// closedToLocked is why receives of a retired context end, or nil.
func (e *Engine) closedToLocked(tag, mask uint64) error {
	if len(e.retired) == 0 || !e.inOneContext(mask) {
		return nil
	}
	return e.retired[e.contextOf(tag)]
}

// takeNotice handles p's NOTICE.
func (p *peer) takeNotice(body []byte) {
	e := p.e
	if e.broken != nil {
		return
	}
	if e.cfg.Contexts == nil {
		p.lose(protocolError("rank %d sends a notice: this rank has no contexts", p.rank))
		return
	}
	if err := e.cfg.Contexts.Notice((*callback)(e), p.rank, body); err != nil {
		p.lose(protocolError("notice of rank %d: %v", p.rank, err))
	}
}

// gone tells the owner of the contexts that p is lost.
func (p *peer) gone() {
	if e := p.e; e.cfg.Contexts != nil && e.broken == nil {
		e.cfg.Contexts.Gone((*callback)(e), p.rank)
	}
}
