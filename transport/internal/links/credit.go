package links

import (
	"encoding/binary"
	"fmt"
	"sync/atomic"

	"github.com/tagmatch/tagmatch/transport"
	"github.com/tagmatch/tagmatch/verbs"
)

// cells are this rank's credit cells: eight bytes for each peer to write to, by rank.
type cells struct {
	v  []uint64 // the bytes are little-endian; accessed atomically, as the device writes to them
	mr verbs.MR // nil: not open
}

func (c *cells) open(pd verbs.PD, n int) error {
	c.v = make([]uint64, n)
	mr, err := pd.RegMR(cellBytes(c.v), verbs.AccessLocalWrite|verbs.AccessRemoteWrite)
	if err != nil {
		return fmt.Errorf("credit cells: %w", err)
	}
	c.mr = mr
	return nil
}

func (c *cells) close() error {
	if c.mr == nil {
		return nil
	}
	return c.mr.Dereg()
}

// Granted reads the cell that peer writes at this rank. Any peer of the job can write to any cell:
// a value must not be trusted beyond that peer's own credit.
func (l *Links) Granted(peer int) uint64 {
	v := atomic.LoadUint64(&l.cells.v[peer])
	var b [8]byte
	binary.NativeEndian.PutUint64(b[:], v)
	return binary.LittleEndian.Uint64(b[:])
}

// grants are the grants that found no room and are still to be posted, peer.grant.
type grants struct {
	due  int     // peers with grantDue
	cell [8]byte // value of a grant that is posted
}

// put makes total the grant of p that is still to be posted.
func (g *grants) put(p *peer, total uint64) {
	p.grant = total
	if !p.grantDue {
		p.grantDue = true
		g.due++
	}
}

// take ends that: the grant of p is posted, or it is lost.
func (g *grants) take(p *peer) {
	if p.grantDue {
		p.grantDue = false
		g.due--
	}
}

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
	l.grants.put(&l.peers[to], total)
	l.todo = true
	return nil
}

// regrant posts the grants that found no room.
func (l *Links) regrant() {
	for i := range l.peers {
		p := &l.peers[i]
		switch {
		case !p.grantDue:
		case p.limit == 0:
			l.grants.take(p)
		case p.posted-p.done < p.limit:
			_ = l.Grant(i, p.grant) // an error loses the peer, which Sink.PeerLost reports
		}
	}
}
