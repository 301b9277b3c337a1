package rc

import (
	"encoding/binary"
	"fmt"
	"sync/atomic"

	"github.com/tagmatch/tagmatch/internal/invariant"
	"github.com/tagmatch/tagmatch/transport"
	"github.com/tagmatch/tagmatch/verbs"
)

// cells are this rank's credit cells, one for each peer to write to: eight bytes, little-endian.
type cells struct {
	v  []uint64 // accessed atomically: the device writes to them
	mr verbs.MR
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

// Granted reads the cell that peer writes for this rank. All peers of a job can write to all cells;
// what a peer claims must not be trusted further than its own credit.
func (l *Links) Granted(peer int) uint64 {
	v := atomic.LoadUint64(&l.cells.v[peer])
	var b [8]byte
	binary.NativeEndian.PutUint64(b[:], v)
	return binary.LittleEndian.Uint64(b[:])
}

// Grant stores total into this rank's cell at the peer. When there is no room, Poll does it later:
// the newest total stands for all before it, so a Grant is never refused for want of room.
func (l *Links) Grant(to int, total uint64) error {
	if invariant.Enabled {
		defer l.inv.Enter("Grant")()
	}
	return l.giveCredit(to, total)
}

func (l *Links) giveCredit(to int, total uint64) error {
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

// regrant posts the credits that found no room.
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
			_ = l.giveCredit(i, p.grant) // a failure loses the peer, which is reported
		}
	}
}
