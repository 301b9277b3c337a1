package soft

import (
	"syscall"

	"github.com/tagmatch/tagmatch/internal/invariant"
	"github.com/tagmatch/tagmatch/verbs"
)

const (
	maxSGE   = 8
	maxSRQWR = 1 << 20
)

// recvQueue is a ring of posted receives: an SRQ, or a queue pair's own queue. The positions head
// and tail wrap at 2^32; tail-head is never above maxWR.
type recvQueue struct {
	d     *Device
	pd    *protDomain
	ring  []recvEntry
	sges  []sge  // width elements for each entry of ring
	head  uint32 // the oldest posted receive
	tail  uint32 // where the next is posted
	limit uint32 // event SRQ_LIMIT_REACHED when fewer are posted; 0: not armed
	maxWR uint32 // most receives posted
	width uint32 // most SGEs of a receive
	num   uint32 // SRQ number; 0: a queue pair's own queue
	users int    // QPs attached
	gone  bool   // destroyed
}

// recvEntry is a posted receive; its SGEs are in recvQueue.sges.
type recvEntry struct {
	wrid  uint64
	size  uint64 // bytes of all its SGEs
	nsge  uint16
	badSG bool // an SGE is outside its region: LOC_PROT_ERR when a message takes the receive
}

func newRecvQueue(pd *protDomain, maxWR, most uint32) *recvQueue {
	q := &recvQueue{d: pd.d, pd: pd, maxWR: maxWR, width: most}
	if maxWR > 0 {
		n := ringSize(int(maxWR))
		q.ring, q.sges = make([]recvEntry, n), make([]sge, n*int(most))
	}
	return q
}

func (q *recvQueue) posted() uint32 { return q.tail - q.head }

func (q *recvQueue) oldest() *recvEntry { return &q.ring[q.head&uint32(len(q.ring)-1)] }

// pop takes the oldest receive out of the queue.
func (q *recvQueue) pop() {
	q.head++
	if q.limit != 0 {
		q.checkLimit()
	}
}

// again posts the receive once more that was taken last.
func (q *recvQueue) again(wc *verbs.WC) {
	q.head--
	if invariant.Enabled { // its arguments cost something
		q.checkPosted(wc.WRID, q.headSGEs())
	}
}

// checkLimit raises the limit event if it is due (TMO 8.4).
func (q *recvQueue) checkLimit() {
	if q.limit != 0 && q.posted() < q.limit {
		q.limit = 0
		q.d.event(verbs.AsyncEvent{Type: verbs.EventSRQLimitReached, QP: q.num})
	}
}

// post adds one receive.
func (q *recvQueue) post(op string, wr *verbs.RecvWR) error {
	if len(wr.SGList) > int(q.width) {
		return fail(op, syscall.EINVAL, "more scatter/gather entries than the queue was created for")
	}
	if q.posted() >= q.maxWR {
		return fail(op, syscall.ENOMEM, "the receive queue is full")
	}
	i := q.tail & uint32(len(q.ring)-1)
	e := &q.ring[i]
	e.wrid, e.nsge, e.size, e.badSG = wr.WRID, uint16(len(wr.SGList)), 0, false
	sges := q.sges[i*q.width:]
	for k := range wr.SGList {
		s := &wr.SGList[k]
		sges[k] = sgeOf(s)
		e.size += uint64(len(s.Data))
		if !q.d.regions.Local(&q.pd.Domain, s.LKey, s.Data, verbs.AccessLocalWrite) {
			e.badSG = true
		}
	}
	q.tail++
	if invariant.Enabled { // its arguments cost something
		q.checkPosted(wr.WRID, sges[:e.nsge])
	}
	return nil
}

// headSGEs returns the oldest receive's SGEs.
func (q *recvQueue) headSGEs() []sge {
	i := q.head & uint32(len(q.ring)-1)
	return q.sges[i*q.width:][:q.ring[i].nsge]
}

// sharedQueue is an SRQ.
type sharedQueue struct {
	recvQueue
	tm *tagQueue // nil: no tag matching
}

// CreateSRQ makes a shared receive queue.
func (p *protDomain) CreateSRQ(attr *verbs.SRQInitAttr) (verbs.SRQ, error) {
	defer p.d.enter("create_srq")()
	p.d.nic.slow()
	const known = verbs.SRQInitType | verbs.SRQInitPD | verbs.SRQInitXRCD | verbs.SRQInitCQ | verbs.SRQInitTM
	typ := verbs.SRQTypeBasic
	if attr.Mask&verbs.SRQInitType != 0 {
		typ = attr.Type
	}
	switch {
	case attr.Mask&^known != 0:
		return nil, fail("create_srq", syscall.EOPNOTSUPP, "unknown bits in Mask")
	case typ != verbs.SRQTypeBasic && typ != verbs.SRQTypeTM:
		return nil, fail("create_srq", syscall.EOPNOTSUPP, "this device has basic and tag-matching SRQs only")
	case attr.MaxWR < 1 || attr.MaxWR > maxSRQWR:
		return nil, fail("create_srq", syscall.EINVAL, "MaxWR must be between 1 and the device's MaxSRQWR")
	case attr.MaxSGE > maxSGE:
		return nil, fail("create_srq", syscall.EINVAL, "MaxSGE is above the device's SRQSGE")
	}
	var tm *tagQueue
	if typ == verbs.SRQTypeTM {
		var err error
		if tm, err = p.newTagQueue(attr); err != nil {
			return nil, err
		}
		tm.cq.users++
	}
	attr.MaxSGE = max(attr.MaxSGE, 1)
	attr.Limit = 0 // ignored at creation, as by ibv_create_srq(3)
	s := &sharedQueue{recvQueue: *newRecvQueue(p, attr.MaxWR, attr.MaxSGE), tm: tm}
	if tm != nil {
		tm.s = s
	}
	p.d.lastSRQ++
	s.num = p.d.lastSRQ
	p.Users++
	return s, nil
}

// Num is the SRQ's number in events.
func (s *sharedQueue) Num() uint32 { return s.num }

// PostSRQRecv posts receives.
func (s *sharedQueue) PostSRQRecv(wr *verbs.RecvWR) (bad *verbs.RecvWR, err error) {
	if invariant.Enabled {
		defer s.d.enter("post_srq_recv")()
	}
	if s.gone {
		return wr, fail("post_srq_recv", syscall.EINVAL, "the SRQ is gone")
	}
	for ; wr != nil; wr = wr.Next {
		if err = s.post("post_srq_recv", wr); err != nil {
			bad = wr
			break
		}
	}
	s.d.postedRecv()
	return bad, err
}

// Modify arms the limit event. Resizing fails, as on mlx5 (TMO 8.4).
func (s *sharedQueue) Modify(attr verbs.SRQAttr, mask verbs.SRQAttrMask) error {
	defer s.d.enter("modify_srq")()
	switch {
	case mask&verbs.SRQMaxWR != 0:
		return fail("modify_srq", syscall.EINVAL, "the queue cannot be resized")
	case mask&^verbs.SRQLimit != 0:
		return fail("modify_srq", syscall.EINVAL, "unknown bits in mask")
	case mask&verbs.SRQLimit != 0 && attr.Limit > s.maxWR:
		return fail("modify_srq", syscall.EINVAL, "Limit is above the queue's size")
	}
	if mask&verbs.SRQLimit != 0 {
		s.limit = attr.Limit
		s.checkLimit()
	}
	return nil
}

// Query returns size and limit.
func (s *sharedQueue) Query() (verbs.SRQAttr, error) {
	defer s.d.enter("query_srq")()
	return verbs.SRQAttr{MaxWR: s.maxWR, MaxSGE: s.width, Limit: s.limit}, nil
}

// Destroy frees the SRQ. Receives that are still posted get no completions.
func (s *sharedQueue) Destroy() error {
	defer s.d.enter("destroy_srq")()
	switch {
	case s.gone:
		return fail("destroy_srq", syscall.EINVAL, "the SRQ is gone already")
	case s.users > 0:
		return fail("destroy_srq", syscall.EBUSY, "queue pairs are attached to the SRQ")
	}
	s.gone = true
	s.checkCleared()
	if s.tm != nil {
		s.tm.checkDestroyed()
		s.tm.cq.users--
	}
	s.pd.Users--
	return nil
}
