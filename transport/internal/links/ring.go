package links

import (
	"fmt"

	"github.com/tagmatch/tagmatch/verbs"
)

// ring is the receive buffers of the SRQ: one registered allocation, cut into slots. Its pages are
// touched only when used, and never where the device lends what it received (verbs.WC.Data). A slot
// belongs to the device from post to its completion, which names it by its WRID, then to the
// transport until the next post.
type ring struct {
	srq   verbs.SRQ
	mr    verbs.MR // of slab; nil: not open
	slab  []byte   // the buffers, by slot
	size  int      // of a slot, bytes
	batch int      // slots that are posted at once
	n     int      // slots in wrs that are still to be posted, fewer than batch
	wrs   [repostBatch]verbs.RecvWR
	sgs   [repostBatch]verbs.SGE // of wrs
	inv   ringCheck
}

// repostBatch is the most buffers that are posted in one chain.
const repostBatch = 32

// open registers depth buffers of size bytes in pd and posts them to srq.
func (r *ring) open(pd verbs.PD, srq verbs.SRQ, depth, size int) (err error) {
	r.srq, r.slab, r.size, r.batch = srq, make([]byte, depth*size), size, min(repostBatch, max(1, depth/4))
	r.inv.init(depth)
	for i := range r.wrs {
		r.wrs[i].SGList = r.sgs[i : i+1 : i+1]
		if i+1 < len(r.wrs) {
			r.wrs[i].Next = &r.wrs[i+1]
		}
	}
	if r.mr, err = pd.RegMR(r.slab, verbs.AccessLocalWrite); err != nil {
		return fmt.Errorf("receive buffers, %d of %d bytes: %w", depth, size, err)
	}
	for i := range r.sgs {
		r.sgs[i].LKey = r.mr.LKey()
	}
	for i := range depth {
		if r.add(uint64(i)) {
			if err := r.flush(); err != nil {
				return err
			}
		}
	}
	return r.flush()
}

// at returns the buffer in a slot.
func (r *ring) at(slot uint64) []byte {
	off := int(slot) * r.size
	return r.slab[off : off+r.size : off+r.size]
}

// message returns what a receive has got, where the device lends it, or in its slot; nil where the
// completion is of no slot, or of more bytes than one has.
func (r *ring) message(wc *verbs.WC) []byte {
	msg := wc.Data
	if msg == nil && IsRecv(wc.WRID) && uint64(wc.ByteLen) <= uint64(r.size) {
		msg = r.at(wc.WRID)[:wc.ByteLen:wc.ByteLen]
	}
	return msg
}

// add has a slot posted by the next flush, and reports whether that is due: slots are posted in
// chains, so that a message costs a share of one call. It is small enough to be inlined.
func (r *ring) add(slot uint64) (due bool) {
	r.checkPosted(slot)
	r.wrs[r.n].WRID, r.sgs[r.n].Data = slot, r.at(slot)
	r.n++
	return r.n >= r.batch
}

// flush posts what is still to be posted.
func (r *ring) flush() error {
	if r.n == 0 {
		return nil
	}
	last := &r.wrs[r.n-1]
	next := last.Next
	last.Next, r.n = nil, 0
	_, err := r.srq.PostSRQRecv(&r.wrs[0])
	last.Next = next
	if err != nil {
		return fmt.Errorf("posting receive buffers: %w", err)
	}
	return nil
}

// close deregisters the memory, if the ring is open. The SRQ must be destroyed before.
func (r *ring) close() error {
	if r.mr == nil {
		return nil
	}
	return r.mr.Dereg()
}
