package links

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/tagmatch/tagmatch/internal/invariant"
	"github.com/tagmatch/tagmatch/transport"
	"github.com/tagmatch/tagmatch/verbs"
)

// read is a slot of Links.reads: an outstanding RDMA READ. The slot is in the request's WRID.
type read struct {
	id   uint64   // the engine's; several reads may have the same
	mr   verbs.MR // of the destination; nil for a read of no bytes, and after Abandon
	peer *peer    // that is read from; nil: the slot is free
	seq  uint32   // sequence number of the request: a completion must have it too
}

// Read copies len(dst) bytes from a peer's memory; Sink.ReadDone(id) reports the end. No more reads
// are outstanding than the peer answers concurrently: another would block the messages behind it
// (TMO 8.1).
func (l *Links) Read(from int, dst []byte, va uint64, rkey uint32, id uint64) error {
	p, err := l.usable(from)
	switch {
	case err != nil:
		return err
	case p.reads >= p.maxRead:
		return transport.ErrAgain
	case uint64(len(dst)) > l.maxRead:
		return fmt.Errorf("transport/%s: a read of %d bytes, the limit is %d", l.cfg.Mode, len(dst), l.maxRead)
	}
	l.read.SGList = l.readS[:0]
	var mr verbs.MR
	if len(dst) > 0 {
		if mr, err = l.pd.RegMR(dst, verbs.AccessLocalWrite); err != nil {
			if errors.Is(err, syscall.ENOMEM) {
				return transport.ErrAgain // regions become free when other requests end
			}
			return err
		}
		l.readS[0] = verbs.SGE{Data: dst, LKey: mr.LKey()}
		l.read.SGList = l.readS[:]
	}
	slot := l.readSlot()
	l.reads[slot] = read{id: id, mr: mr, peer: p, seq: p.posted}
	p.reads++
	l.read.RemoteAddr, l.read.RKey = va, rkey
	err = l.post(p, &l.read, kindRead|uint64(slot)<<slotShift, verbs.SendSignaled)
	l.readS[0] = verbs.SGE{}
	if err != nil {
		_, _ = l.endRead(slot)
	} else if invariant.Enabled {
		l.inv.Reads(from, id)
	}
	return err
}

// Abandon takes the destination of the reads with this id from the device, which writes nothing
// there after it. The reads end as others do, with an error. It returns false, and the reads go on,
// while the peer is in the middle of a copy to a destination.
func (l *Links) Abandon(from int, id uint64) bool {
	quiet := true
	for i := range l.reads {
		if r := &l.reads[i]; r.is(&l.peers[from], id) {
			mr, ok := r.mr.(verbs.QuietMR)
			quiet = (!ok || mr.Quiet()) && quiet
		}
	}
	for i := range l.reads {
		r := &l.reads[i]
		if !quiet || !r.is(&l.peers[from], id) {
			continue
		}
		if err := r.mr.Dereg(); err != nil {
			l.lose(r.peer, causeLocal, fmt.Errorf("the device of this rank failed: taking back the buffer of a read: %w", err))
		}
		r.mr = nil
	}
	return quiet
}

// is reports whether r is a read from p with that id whose destination the device has.
func (r *read) is(p *peer, id uint64) bool { return r.id == id && r.mr != nil && r.peer == p }

// readSlot takes a free slot.
func (l *Links) readSlot() uint32 {
	if n := len(l.freeRd); n > 0 {
		slot := l.freeRd[n-1]
		l.freeRd = l.freeRd[:n-1]
		return slot
	}
	l.reads = append(l.reads, read{})
	return uint32(len(l.reads) - 1)
}

// endRead frees a slot and the memory region in it, and returns the read's id.
func (l *Links) endRead(slot uint32) (id uint64, err error) {
	r := &l.reads[slot]
	id = r.id
	if r.mr != nil {
		err = r.mr.Dereg()
	}
	r.peer.reads--
	*r = read{}
	l.freeRd = append(l.freeRd, slot)
	return id, err
}

// readDone reports the end of a read to the sink.
func (l *Links) readDone(p *peer, wrid uint64, failure error) {
	slot := uint32(wrid >> slotShift & slotMask)
	if int(slot) >= len(l.reads) || l.reads[slot].peer != p || l.reads[slot].seq != uint32(wrid) {
		return
	}
	if invariant.Enabled {
		l.inv.ReadEnds(l.Rank(p.qp.Num()), l.reads[slot].id)
	}
	id, err := l.endRead(slot)
	if failure == nil && err != nil {
		failure = err
	}
	l.sink.ReadDone(id, failure)
}

// closeReads deregisters the destinations of reads that have not ended.
func (l *Links) closeReads() error {
	var errs []error
	for i := range l.reads {
		if mr := l.reads[i].mr; mr != nil {
			errs = append(errs, mr.Dereg())
		}
	}
	l.reads = nil
	return errors.Join(errs...)
}
