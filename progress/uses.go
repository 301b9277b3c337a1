package progress

// Uses counts the operations whose buffer is in buf, in whole or in part, and that have not ended.
func (e *Engine) Uses(buf []byte) (n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	count := func(op *Op) {
		if op != nil && op.uses(buf) {
			n++
		}
	}
	for _, op := range e.posted.All() {
		count(op)
	}
	for _, t := range []*slots{&e.sends, &e.reads, &e.off.slots} {
		for i := range t.entries {
			if op := t.entries[i].op; op != nil && op.state != opOffloaded { // those are posted too
				count(op)
			}
		}
	}
	for i := range e.peers {
		if o := &e.peers[i].out; !o.empty() {
			for _, op := range o.queue.All() {
				count(op)
			}
		}
	}
	return n
}
