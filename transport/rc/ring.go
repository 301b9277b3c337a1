package rc

import (
	"fmt"

	"github.com/tagmatch/tagmatch/internal/invariant"
	"github.com/tagmatch/tagmatch/verbs"
)

// Ring is the receive buffers of an SRQ: one registered allocation, cut into slots. Its pages are
// touched only when used, and never where the device lends what it received (verbs.WC.Data).
type Ring struct {
	srq   verbs.SRQ
	mr    verbs.MR
	lkey  uint32
	slab  []byte
	size  int // bytes of a slot
	batch int
	n     int // slots in wrs, to be posted
	wrs   [repostBatch]verbs.RecvWR
	sgs   [repostBatch]verbs.SGE
	inv   *ringChecks
}

// repostBatch is the most buffers that are posted in one chain.
const repostBatch = 16

// NewRing registers depth buffers of size bytes in pd and posts them to srq.
func NewRing(pd verbs.PD, srq verbs.SRQ, depth, size int) (*Ring, error) {
	r := &Ring{srq: srq, slab: make([]byte, depth*size), size: size, batch: min(repostBatch, max(1, depth/4))}
	if invariant.Enabled {
		r.inv = newRingChecks(depth)
	}
	for i := range r.wrs {
		r.wrs[i].SGList = r.sgs[i : i+1 : i+1]
		if i+1 < len(r.wrs) {
			r.wrs[i].Next = &r.wrs[i+1]
		}
	}
	mr, err := pd.RegMR(r.slab, verbs.AccessLocalWrite)
	if err != nil {
		return nil, fmt.Errorf("receive buffers, %d of %d bytes: %w", depth, size, err)
	}
	r.mr, r.lkey = mr, mr.LKey()
	for i := range depth {
		if err := r.Done(uint64(i)); err != nil {
			return r, err
		}
	}
	return r, r.flush()
}

// Filled returns the first n bytes of a slot, nil if it is shorter.
func (r *Ring) Filled(slot uint64, n uint32) []byte {
	off := int(slot) * r.size
	if uint64(n) > uint64(r.size) || off+r.size > len(r.slab) {
		return nil
	}
	if invariant.Enabled {
		r.checkFilled(slot, n)
	}
	return r.slab[off : off+int(n) : off+int(n)]
}

// Done returns a slot after its message was handled. Slots are posted in chains, so that a message
// costs a share of one call.
func (r *Ring) Done(slot uint64) error {
	if invariant.Enabled {
		r.checkPosted(slot)
	}
	off := int(slot) * r.size
	r.wrs[r.n].WRID = slot
	r.sgs[r.n] = verbs.SGE{Data: r.slab[off : off+r.size : off+r.size], LKey: r.lkey}
	r.n++
	if r.n < r.batch {
		return nil
	}
	return r.flush()
}

func (r *Ring) flush() error {
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

// Close deregisters the memory. The SRQ must be destroyed before.
func (r *Ring) Close() error { return r.mr.Dereg() }
