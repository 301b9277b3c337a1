package p2p

// ContextOf is the context of a Comm.
func ContextOf(c *Comm) int { return c.comm.Context }

// IsEnding tells whether a Shutdown is under way.
func IsEnding(w *World) bool {
	if w.ending.TryAcquire(1) {
		w.ending.Release(1)
		return false
	}
	return true
}
