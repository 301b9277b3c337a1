package progress

// A context is barred when nobody is to use it any more, wherever its messages are: operations of
// it end, and later ones fail. Unlike one that is retired, it may have users here.

// Bar ends the operations of a context with cause. Receives end as they would by Cancel; so do
// sends, each once its buffer is free. Those that are posted later fail. Messages are discarded as
// after Retire, which may come before or later; Reuse ends what both began.
func (c *callback) Bar(context uint64, cause error) {
	e := (*Engine)(c)
	if e.broken != nil {
		return
	}
	if e.contexts.barred == nil {
		e.contexts.barred = map[uint64]error{}
	}
	e.contexts.barred[context] = cause
	if e.contexts.retired[context] == nil {
		e.contexts.refuse(context, cause)
	}
	for name, m := range e.held {
		if e.contexts.of(m.status.Tag) == context {
			m.fail(cause)
			e.peers[name.src].fin(name.appCtx)
		}
	}
	e.contexts.barSends(context, cause)
}

// barSends ends the sends of a context. All that wait in queues leave them before others may be
// sent in their place.
func (c *contexts) barSends(context uint64, cause error) {
	e := c.e
	var sends []*Op
	for op := range e.opsLocked() {
		if (op.state == opQueued || op.state == opRequested) && c.of(op.tag) == context {
			sends = append(sends, op)
		}
	}
	var relieved []*peer
	for _, op := range sends {
		if op.state == opRequested {
			op.withdraw()
			continue
		}
		p := e.peers[op.peer]
		p.unqueue(op)
		op.endSend(Status{}, cause)
		relieved = append(relieved, p)
	}
	for _, p := range relieved {
		p.pump()
	}
}

// barredBy is why operations of a barred context end, or nil.
func (c *contexts) barredBy(tag uint64) error {
	if len(c.barred) == 0 {
		return nil
	}
	return c.barred[c.of(tag)]
}
