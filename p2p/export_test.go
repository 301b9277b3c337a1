package p2p

// ContextOf is the context of a Comm.
func ContextOf(c *Comm) int { return c.comm.Context }
