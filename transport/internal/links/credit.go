package links

import (
	"encoding/binary"
	"fmt"
	"sync/atomic"

	"github.com/tagmatch/tagmatch/internal/invariant"
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

// Grant stores total into this rank's cell at the peer by RDMA WRITE. Without room Poll posts it
// later: the newest total replaces all earlier ones, so a Grant needs no back-pressure.
func (l *Links) Grant(to int, total uint64) error {
	p, err := l.usable(to)
	if err == nil {
		if invariant.Enabled {
			l.inv.Grants(to, total)
		}
		err = l.postGrant(p, total)
	}
	if err != transport.ErrAgain {
		return err
	}
	p = &l.peers[to]
	p.grant = total
	if !p.grantDue {
		p.grantDue = true
		l.grantsDue++
		l.todo = true
	}
	return nil
}

// postGrant posts the RDMA WRITE of a grant, which is not deferred any more.
func (l *Links) postGrant(p *peer, total uint64) error {
	if p.grantDue {
		p.grantDue = false
		l.grantsDue--
	}
	binary.LittleEndian.PutUint64(l.cellB[:], total)
	l.write.RemoteAddr, l.write.RKey = p.cellAddr, p.cellRKey
	data := l.cellB[:]
	if len(data) <= l.inline {
		l.writeS[0] = verbs.SGE{Data: data}
		l.write.SGList = l.writeS[:]
		return l.post(p, &l.write, kindSend, verbs.SendInline)
	}
	slot, buf, ok := l.bounce.Get()
	if !ok {
		return transport.ErrAgain
	}
	l.writeS[0] = verbs.SGE{Data: buf[:copy(buf, data)], LKey: l.bounce.LKey()}
	l.write.SGList = l.writeS[:]
	err := l.post(p, &l.write, kindBounce|uint64(slot)<<slotShift, verbs.SendSignaled)
	if err != nil {
		l.bounce.Put(slot)
	}
	return err
}

// regrant posts the grants that found no room.
func (l *Links) regrant() {
	for i := range l.peers {
		p := &l.peers[i]
		if !p.grantDue {
			continue
		}
		if p.limit == 0 {
			p.grantDue = false
			l.grantsDue--
		} else if p.posted-p.done < p.limit {
			_ = l.Grant(i, p.grant) // an error loses the peer, which Sink.PeerLost reports
		}
	}
}
