package links

import "github.com/tagmatch/tagmatch/verbs"

// Drained reports whether all requests posted so far have completed. Only signalled requests report
// that (TMO 8.2): where the newest one is unsignalled, a signalled RDMA WRITE of no bytes is posted
// behind it. Poll, then ask again.
func (l *Links) Drained() bool {
	drained := true
	for i := range l.peers {
		p := &l.peers[i]
		if p.limit == 0 || p.posted == p.done && !p.grantDue {
			continue // not usable, or nothing outstanding
		}
		drained = false
		if p.signalled != p.posted && p.posted-p.done < p.limit && !p.grantDue {
			l.write.RemoteAddr, l.write.RKey, l.write.SGList = p.cellAddr, p.cellRKey, nil
			// An error loses the peer, which Sink.PeerLost reports.
			_ = l.post(p, &l.write, kindSend, verbs.SendSignaled)
		}
	}
	return drained
}
