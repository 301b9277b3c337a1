package links

import (
	"errors"
	"fmt"

	"github.com/tagmatch/tagmatch/transport"
	"github.com/tagmatch/tagmatch/verbs"
)

// reads are the RDMA READs that are outstanding, each in a slot. The WRID of its request names it.
type reads struct {
	slots []read
	free  []uint32 // slots that no read has; the last is the next to be used
}

// read is an outstanding RDMA READ.
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
			return l.unregistered(len(dst), err)
		}
		l.readS[0] = verbs.SGE{Data: dst, LKey: mr.LKey()}
		l.read.SGList = l.readS[:]
	}
	slot := l.reads.add(read{id: id, mr: mr, peer: p, seq: p.posted})
	l.read.RemoteAddr, l.read.RKey = va, rkey
	err = l.post(p, &l.read, kindRead|uint64(slot)<<slotShift, verbs.SendSignaled)
	l.readS[0] = verbs.SGE{}
	if err != nil {
		_, _ = l.reads.end(slot)
		return err
	}
	l.inv.Reads(from, id)
	return nil
}

// Abandon takes the destination of the reads with this id from the device, which writes nothing
// there after it. The reads end as others do, with an error. It returns false, and the reads go on,
// while the peer is in the middle of a copy to a destination.
func (l *Links) Abandon(from int, id uint64) bool {
	p := l.peers[from]
	quiet, err := l.reads.abandon(p, id)
	if err != nil {
		l.lose(p, causeLocal, fmt.Errorf("the device of this rank failed: taking back the buffer of a read: %w", err))
	}
	return quiet
}

// readDone reports the end of a read to the sink.
func (l *Links) readDone(p *peer, wrid uint64, failure error) {
	slot := uint32(wrid >> slotShift & slotMask)
	if !l.reads.has(slot, p, uint32(wrid)) {
		return
	}
	l.inv.ReadEnds(p.rank, l.reads.slots[slot].id)
	id, err := l.reads.end(slot)
	if failure == nil {
		failure = err
	}
	l.sink.ReadDone(id, failure)
}

// add puts a read into a free slot.
func (o *reads) add(r read) (slot uint32) {
	r.peer.reads++
	if n := len(o.free); n > 0 {
		slot, o.free = o.free[n-1], o.free[:n-1]
		o.slots[slot] = r
		return slot
	}
	o.slots = append(o.slots, r)
	return uint32(len(o.slots) - 1)
}

// has reports whether the read in a slot is from p, by the request with sequence number seq.
func (o *reads) has(slot uint32, p *peer, seq uint32) bool {
	return int(slot) < len(o.slots) && o.slots[slot].peer == p && o.slots[slot].seq == seq
}

// end frees a slot and the memory region in it, and returns the read's id.
func (o *reads) end(slot uint32) (id uint64, err error) {
	r := &o.slots[slot]
	id = r.id
	if r.mr != nil {
		err = r.mr.Dereg()
	}
	r.peer.reads--
	*r = read{}
	o.free = append(o.free, slot)
	return id, err
}

// abandon takes the destination of the reads from p with this id from the device, unless the peer
// is in the middle of a copy to one.
func (o *reads) abandon(p *peer, id uint64) (quiet bool, err error) {
	quiet = true
	for i := range o.slots {
		if r := &o.slots[i]; r.is(p, id) {
			quiet = Quiet(r.mr) && quiet // each is asked: it takes back what the peer may write
		}
	}
	if !quiet {
		return false, nil
	}
	for i := range o.slots {
		if r := &o.slots[i]; r.is(p, id) {
			err = errors.Join(err, r.mr.Dereg())
			r.mr = nil
		}
	}
	return true, err
}

// Quiet has peers begin no more copies to a region, and reports whether none is in the middle of
// one.
func Quiet(mr verbs.MR) bool {
	q, ok := mr.(verbs.QuietMR)
	return !ok || q.Quiet()
}

// is reports whether r is a read from p with that id whose destination the device has.
func (r *read) is(p *peer, id uint64) bool { return r.id == id && r.mr != nil && r.peer == p }

// close deregisters the destinations of reads that have not ended.
func (o *reads) close() error {
	var errs []error
	for i := range o.slots {
		if mr := o.slots[i].mr; mr != nil {
			errs = append(errs, mr.Dereg())
		}
	}
	*o = reads{}
	return errors.Join(errs...)
}
