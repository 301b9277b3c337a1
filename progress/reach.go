package progress

// A rank that this one is not connected to may end unheard by this one's device. The launcher's
// store tells of such a loss (PeerLost), as long as somebody hears the store. After that a receive
// or a probe connects to each rank that its message may come from: the connection shows whether the
// rank is there, and how it ends.

// ReachAwaited says that nobody tells any more of the loss of ranks that this one is not connected
// to. Receives and probes that wait, and later ones, connect to the ranks that they wait for.
func (e *Engine) ReachAwaited() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.wait.Stopping() {
		return
	}
	e.reaches, e.unusual = true, true
	for _, op := range e.posted.All() {
		e.reachLocked(op.peer)
	}
	e.tr.Wake() // who sleeps knows nothing of connections that are to be made
}

// reachLocked connects to the ranks that a receive from src waits for, unless that was done before.
func (e *Engine) reachLocked(src int) {
	if src >= 0 {
		e.peer(src).reach()
		return
	}
	g := e.sources.group(src)
	if g.reached {
		return
	}
	g.reached = true
	for i := range e.peers {
		if g.members.Contains(i) {
			e.peer(i).reach()
		}
	}
}

// reach connects to p.
func (p *peer) reach() {
	if !p.met && !p.reached && p.lost == nil && p.rank != p.e.cfg.Rank {
		p.reached = true
		_ = p.meet() // fails for a peer that is lost, which the transport reports
	}
}
