package soft

import (
	"github.com/tagmatch/tagmatch/internal/invariant"
	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/wire"
)

// PostSend posts a chain of requests.
func (q *queuePair) PostSend(wr *verbs.SendWR) (bad *verbs.SendWR, err error) {
	if invariant.Enabled {
		defer q.d.enter("post_send")()
	}
	if wr == nil || wr.Next != nil || !q.sendNow(wr, nil) {
		bad, err = q.postChain(wr)
	}
	if q.d.armed {
		q.d.posted()
	}
	return bad, err
}

// postChain is PostSend of any chain, from the first request on that does not go at once by itself.
func (q *queuePair) postChain(wr *verbs.SendWR) (bad *verbs.SendWR, err error) {
	if wr != nil && wr.Next != nil {
		if to, ok := q.link.(wire.Holder); ok {
			wr = q.sendTogether(wr, to)
		}
	}
	for ; wr != nil; wr = wr.Next {
		if q.sendNow(wr, nil) {
			continue
		}
		if err := q.postSlow(wr); err != nil {
			return wr, err
		}
	}
	return nil, nil
}

// sendTogether sends the first requests of a chain, as many as the link shows its peer together,
// and returns the others.
func (q *queuePair) sendTogether(wr *verbs.SendWR, to wire.Holder) *verbs.SendWR {
	first := wr
	for wr != nil && q.sendNow(wr, to) {
		wr = wr.Next
	}
	if wr != first {
		to.Publish()
	}
	return wr
}

// sendNow is the fast path: a plain SEND that the link takes at once as one packet, or holds if it
// is to. For everything else, invalid requests included, it returns false and does nothing.
func (q *queuePair) sendNow(wr *verbs.SendWR, to wire.Holder) bool {
	if !q.fast || q.sent != q.posted || q.posted-q.reclaimed >= q.depth || wr.Opcode != verbs.WRSend || len(wr.SGList) > 2 {
		return false
	}
	var head, body []byte
	switch len(wr.SGList) {
	case 2:
		body = wr.SGList[1].Data
		fallthrough
	case 1:
		head = wr.SGList[0].Data
	}
	n := len(head) + len(body)
	// First the case that needs no call.
	small := wr.Flags == verbs.SendInline && n <= int(q.init.Cap.MaxInlineData) && len(wr.SGList) <= int(q.init.Cap.MaxSendSGE)
	if n > q.maxPay || !small && !q.plainOK(wr, n) {
		return false
	}
	h := &q.hdr
	h.Flags = wire.FlagFirst | wire.FlagLast
	var flags uint8
	if wr.Flags&verbs.SendSignaled != 0 || q.sigAll {
		h.Flags |= wire.FlagAckReq
		flags = entrySignaled
	}
	if wr.Flags&verbs.SendSolicited != 0 {
		h.Flags |= wire.FlagSolicited
	}
	h.PSN, h.Length, h.Total = q.posted+q.psn, uint32(n), uint64(n)
	if to != nil {
		if !to.Hold(h, head, body) {
			return false
		}
	} else if !q.link.Send(h, head, body) {
		return false
	}
	q.d.dirty = true
	e := &q.sq[q.posted&q.mask]
	e.wrid, e.op, e.flags, e.status, e.length = wr.WRID, uint8(verbs.WRSend), flags, 0, uint32(n)
	q.checkPosted(nil)
	q.posted++
	q.sent = q.posted
	return true
}

// plainOK reports whether the flags and keys of a SEND allow the fast path.
func (q *queuePair) plainOK(wr *verbs.SendWR, n int) bool {
	const known = verbs.SendSignaled | verbs.SendInline | verbs.SendSolicited
	if wr.Flags&^known != 0 || len(wr.SGList) > int(q.init.Cap.MaxSendSGE) {
		return false
	}
	if wr.Flags&verbs.SendInline != 0 {
		return n <= int(q.init.Cap.MaxInlineData)
	}
	for i := range wr.SGList {
		if !q.d.regions.Local(&q.pd.Domain, wr.SGList[i].LKey, wr.SGList[i].Data, 0) {
			return false
		}
	}
	return true
}
