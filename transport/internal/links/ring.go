package links

import (
	"fmt"

	"github.com/tagmatch/tagmatch/verbs"
)

// ring is the receive buffers of the SRQ, which nobody touches where the device lends what it
// received (verbs.WC.Data). A slot belongs to the device from post to its completion, which names
// it by its WRID, then to the transport until the next post.
type ring struct {
	slab
	srq   verbs.SRQ
	batch int // slots that are posted at once
	n     int // slots in wrs that are still to be posted, fewer than batch
	wrs   [repostBatch]verbs.RecvWR
	sgs   [repostBatch]verbs.SGE // of wrs
	inv   ringCheck
}

// repostBatch is the most buffers that are posted in one chain.
const repostBatch = 32

// open registers depth buffers of size bytes in pd and posts them to srq.
func (r *ring) open(pd verbs.PD, srq verbs.SRQ, depth, size int) (err error) {
	if err = r.slab.open(pd, "receive buffers", depth, size, verbs.AccessLocalWrite); err != nil {
		return err
	}
	r.srq, r.batch = srq, min(repostBatch, max(1, depth/4))
	r.inv.init(depth)
	for i := range r.wrs {
		r.wrs[i].SGList = r.sgs[i : i+1 : i+1]
		if i+1 < len(r.wrs) {
			r.wrs[i].Next = &r.wrs[i+1]
		}
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
