package progress

import "iter"

// Uses counts the operations whose buffer is in buf, in whole or in part, and that have not ended.
func (e *Engine) Uses(buf []byte) (n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for op := range e.opsLocked() {
		if op.uses(buf) {
			n++
		}
	}
	return n
}

// opsLocked gives the sends, receives and probes that have not ended, and the operations that stand
// for reads of receives that have.
func (e *Engine) opsLocked() iter.Seq[*Op] {
	return func(yield func(*Op) bool) {
		for _, op := range e.posted.All() {
			if !yield(op) {
				return
			}
		}
		for _, t := range e.tables() {
			for op := range t.ops() {
				if op.state != opOffloaded && !yield(op) { // those are posted too
					return
				}
			}
		}
		for _, p := range e.made {
			for op := range p.out.Sends() {
				if !yield(op) {
					return
				}
			}
		}
	}
}
