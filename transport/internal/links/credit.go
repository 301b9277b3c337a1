package links

import (
	"encoding/binary"
	"errors"
	"sync/atomic"

	"github.com/tagmatch/tagmatch/transport"
)

// closeCells deregisters the credit cells. No queue pair is left.
func (r *roster) closeCells() error {
	var errs []error
	for _, p := range r.made {
		if p.cellMR != nil {
			errs = append(errs, p.cellMR.Dereg())
		}
	}
	return errors.Join(errs...)
}

// Granted reads the cell that peer writes at this rank: its bytes are little-endian, and the device
// writes them at any time. No other rank can write to it.
func (r *roster) Granted(peer int) uint64 {
	v := atomic.LoadUint64(&r.peers[peer].cell)
	var b [8]byte
	binary.NativeEndian.PutUint64(b[:], v)
	return binary.LittleEndian.Uint64(b[:])
}

// grants are the grants that found no room, or no connection, and are still to be posted.
type grants struct {
	due  []*peer // each at its peer.grantAt
	cell [8]byte // value of a grant that is posted
}

// put makes total the grant of p that is still to be posted.
func (g *grants) put(p *peer, total uint64) {
	p.grant = total
	if !p.grantDue() {
		g.due = append(g.due, p)
		p.grantAt = len(g.due)
	}
}

// take ends that: the grant of p is posted, or it is lost. The last one takes its place.
func (g *grants) take(p *peer) {
	if !p.grantDue() {
		return
	}
	last := len(g.due) - 1
	q := g.due[last]
	g.due[p.grantAt-1], q.grantAt = q, p.grantAt
	g.due[last], p.grantAt = nil, 0
	g.due = g.due[:last]
}

// grantDue reports whether the newest grant to a peer is still to be posted: there was no room, or
// no connection.
func (p *peer) grantDue() bool { return p.grantAt > 0 }

// Grant stores total into this rank's cell at the peer by RDMA WRITE. Without room Poll posts it
// later: the newest total replaces all earlier ones, so a Grant needs no back-pressure.
func (l *Links) Grant(to int, total uint64) error {
	p, err := l.usable(to)
	if err == nil {
		l.inv.Grants(to, total)
		l.grants.take(p)
		binary.LittleEndian.PutUint64(l.grants.cell[:], total)
		l.write.RemoteAddr, l.write.RKey = p.cellAddr, p.cellRKey
		err = l.message(p, &l.write, l.grants.cell[:], nil, 0)
	}
	if err != transport.ErrAgain {
		return err
	}
	l.grants.put(l.peers[to], total)
	l.todo = true
	return nil
}

// regrant posts the grants that are due, to peers that have room. It reports whether some peer has
// none: those to peers that are not connected yet wait until they are.
func (l *Links) regrant() (due bool) {
	for i := len(l.grants.due) - 1; i >= 0; i-- { // from the end: the place of one that is posted is taken by one that was visited
		p := l.grants.due[i]
		switch {
		case p.state > linkUp:
			l.grants.take(p)
		case p.posted-p.done < p.limit:
			_ = l.Grant(p.rank, p.grant) // an error loses the peer, which Sink.PeerLost reports
		}
		due = due || p.grantDue() && p.state == linkUp
	}
	return due
}
