package soft

import (
	"github.com/tagmatch/tagmatch/internal/fault"
	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/mem"
)

// sge is a scatter/gather entry in a queue: memory by address and key, as NICs have it. Who uses it
// resolves it in the region table, each time. So no queue refers to the program's memory, however
// long its slots are not used again: only a region does, until it is deregistered.
type sge struct {
	addr, length uint64
	lkey         uint32
}

func sgeOf(s *verbs.SGE) sge { return sge{mem.AddrOf(s.Data), uint64(len(s.Data)), s.LKey} }

// sgesOf are the entries of a request. list is memory for them, so that none is allocated.
func sgesOf(list *[maxSGE]sge, of []verbs.SGE) []sge {
	for i := range of {
		list[i] = sgeOf(&of[i])
	}
	return list[:len(of)]
}

// at resolves the bytes at offset off of a list: at most limit, and of one entry, none beyond its
// end. It returns false where they are in no region with these rights any more.
func (q *queuePair) at(list []sge, off, limit uint64, need verbs.AccessFlags) ([]byte, bool) {
	for i := range list {
		s := &list[i]
		if off >= s.length {
			off -= s.length
			continue
		}
		return q.d.regions.Resolve(&q.pd.Domain, s.lkey, s.addr+off, min(s.length-off, limit), need)
	}
	return nil, true
}

// target is at for the device itself, which writes there.
func (q *queuePair) target(list []sge, off, limit uint64) ([]byte, bool) {
	return q.at(list, off, limit, verbs.AccessLocalWrite)
}

// gather returns at most limit bytes of the data of a SEND or WRITE from w.off on, in up to two
// pieces; false where they are not registered any more.
func (r *requester) gather(w *sendWork, list []sge, limit int) (head, body []byte, ok bool) {
	if w.buf != nil {
		head = w.buf[w.off:]
		return head[:min(len(head), limit)], nil, true
	}
	if head, ok = r.q.at(list, w.off, uint64(limit), 0); ok && len(head) < limit {
		body, ok = r.q.at(list, w.off+uint64(len(head)), uint64(limit-len(head)), 0)
	}
	return head, body, ok
}

// firstBytes gathers the first bytes, at most most, of a message with short SGEs: the headers of
// tag matching must be in the first packet, and a message that fits into the MTU is one packet (TMO
// 4.2).
func (r *requester) firstBytes(list []sge, most int) (first []byte, ok bool) {
	first = r.q.d.first[:0]
	for len(first) < most {
		b, ok := r.q.at(list, uint64(len(first)), uint64(most-len(first)), 0)
		if len(b) == 0 {
			return first, ok
		}
		first = append(first, b...)
	}
	return first, true
}

// scatter copies data to offset off of the list, unless the wire has put it there (see Place). It
// returns false if the list is too short, or not in a region with AccessLocalWrite any more.
func (q *queuePair) scatter(list []sge, off uint64, data []byte) bool {
	for len(data) > 0 {
		b, ok := q.target(list, off, uint64(len(data)))
		if !ok || len(b) == 0 {
			return false
		}
		q.d.writes(list, b)
		if &b[0] != &data[0] {
			copy(b, data)
		}
		off, data = off+uint64(len(b)), data[len(b):]
	}
	return true
}

// land is scatter for what belongs to a long message. Where the memory is gone that is an error,
// and for a short one the end of the process: a guard would cost more than its copy.
func (q *queuePair) land(list []sge, off uint64, data []byte) verbs.WCStatus {
	registered := false
	switch {
	case !fault.Guard(func() { registered = q.scatter(list, off, data) }):
		return verbs.WCLocAccessErr
	case !registered:
		return verbs.WCLocProtErr
	}
	return verbs.WCSuccess
}
