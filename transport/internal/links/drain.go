package links

// Drained reports whether all requests posted so far have completed. Only signalled requests report
// that (TMO 8.2): where the newest one is unsignalled, a signalled RDMA WRITE of no bytes is posted
// behind it. Poll, then ask again.
func (l *Links) Drained() bool {
	drained := true
	for _, p := range l.made {
		if p.state > linkUp || p.posted == p.done && !p.grantDue() {
			continue // lost, or nothing outstanding
		}
		drained = false
		if p.signalled != p.posted && !p.grantDue() && l.budget.used < l.budget.total {
			l.confirm(p)
		}
	}
	return drained
}
