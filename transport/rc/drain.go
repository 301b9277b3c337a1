package rc

import (
	"github.com/tagmatch/tagmatch/internal/invariant"
	"github.com/tagmatch/tagmatch/verbs"
)

// Drained reports that the peers' devices have everything that was posted so far. The device
// contract has no verb for that, but a completion says so (TMO 8.2): where the newest request is
// not signalled, a write of no bytes that is gets posted behind it. Ask again after polling.
func (l *Links) Drained() bool {
	if invariant.Enabled {
		defer l.inv.Enter("Drained")()
	}
	drained := true
	for i := range l.peers {
		p := &l.peers[i]
		if p.limit == 0 || p.posted == p.done && !p.grantDue {
			continue // unusable, or nothing under way
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
