package progress

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
	// Bar ends all operations of a context with cause, also later ones. See its implementation.
	Bar(context uint64, cause error)
	// Reuse ends what Retire and Bar began: messages of the context are kept again.
	Reuse(context uint64)
	// Forget ends the life of a source that Group has returned; no operation names it any more.
	Forget(src int)
}

// AnswerKey is how many bytes of an answer say what it answers.
const AnswerKey = 4

// callback is the Callback of an engine.
type callback Engine

func (c *callback) Notice(dst int, body []byte) {
	(*Engine)(c).peer(dst).sendCtrl(ctrl{kind: ctrlNotice, body: body})
}
func (c *callback) Answer(dst int, body []byte) bool {
	return (*Engine)(c).peer(dst).reply(ctrl{kind: ctrlNotice, body: body}, AnswerKey)
}
func (c *callback) MaxNotice() int { return c.caps.MaxCtrl - ctrlLen }
func (c *callback) Reached(rank int) bool {
	p := c.peers[rank]
	return p != nil && p.out.Charged() != 0
}
func (c *callback) Lost(rank int) bool { return c.peers.loss(rank) != nil }
func (c *callback) Reach(rank int) {
	if c.reaches {
		(*Engine)(c).peer(rank).reach()
		c.tr.Wake() // as in ReachAwaited
	}
}
func (c *callback) Reuse(context uint64) {
	delete(c.contexts.retired, context)
	delete(c.contexts.barred, context)
}
func (c *callback) Forget(src int) {
	if src < AnySource {
		g := c.sources.group(src)
		c.contexts.allow(g.context, nil)
		*g = sourceGroup{}
	}
}

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

// takeNotice handles p's NOTICE.
func (p *peer) takeNotice(body []byte) {
	e := p.e
	if e.broken != nil {
		return
	}
	if e.contexts.owner == nil {
		p.lose(protocolError("rank %d sends a notice: this rank has no contexts", p.rank))
		return
	}
	if err := e.contexts.owner.Notice((*callback)(e), p.rank, body); err != nil {
		p.lose(protocolError("notice of rank %d: %v", p.rank, err))
	}
}

// gone tells the owner of the contexts that p is lost.
func (p *peer) gone() {
	if e := p.e; e.contexts.owner != nil && e.broken == nil {
		e.contexts.owner.Gone((*callback)(e), p.rank)
	}
}
