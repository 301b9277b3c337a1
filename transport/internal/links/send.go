package links

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/tagmatch/tagmatch/transport"
	"github.com/tagmatch/tagmatch/transport/internal/format"
	"github.com/tagmatch/tagmatch/verbs"
)

// SendEager sends a tagged message; payload is copied before it returns. This is the small-message
// path: it allocates nothing and reuses the work request of the last call.
func (l *Links) SendEager(to int, appCtx uint32, tag uint64, payload []byte) error {
	if uint(to) >= uint(len(l.peers)) {
		return errRank(to, len(l.peers))
	}
	p := l.peers[to]
	if p.posted-p.done >= p.limit || l.budget.used >= l.budget.mark && l.crowded() {
		return l.noRoom(to)
	}
	if n := verbs.TMHSize + len(payload); n > l.inline || len(payload) > l.cfg.MaxEager {
		return l.sendBig(to, appCtx, tag, payload)
	}
	format.PutEager(l.eagerB[:], appCtx, tag)
	l.eagerS[1].Data = payload
	err := l.post(p, &l.eager, kindSend, verbs.SendInline)
	l.eagerS[1].Data = nil // it is the caller's again
	return err
}

// sendBig sends a message that is too long for inline.
func (l *Links) sendBig(to int, appCtx uint32, tag uint64, payload []byte) error {
	if len(payload) > l.cfg.MaxEager {
		return fmt.Errorf("transport/%s: an eager message of %d bytes, the limit is %d", l.cfg.Mode, len(payload), l.cfg.MaxEager)
	}
	n := format.PutEager(l.smallB[:], appCtx, tag)
	return l.message(l.peers[to], &l.small, l.smallB[:n], payload, 0)
}

// post posts a request with the next sequence number, signalled if too many before it were not, so
// that slots become free. id is the kind of its WRID and its slot. The caller has checked that
// there is room.
func (l *Links) post(p *peer, wr *verbs.SendWR, id uint64, flags verbs.SendFlags) error {
	seq := p.posted
	if seq-p.signalled >= l.budget.every-1 {
		flags |= verbs.SendSignaled
	}
	checkHeader(wr)
	wr.WRID, wr.Flags = id|uint64(seq), flags
	if _, err := p.qp.PostSend(wr); err != nil {
		return l.refused(p, err)
	}
	p.posted = seq + 1
	l.budget.used++
	if flags&verbs.SendSignaled != 0 {
		p.signalled = seq + 1
	}
	return nil
}

// refused handles a request that the device refused. Slots are counted, so a full queue is not
// expected; ENOMEM is back-pressure all the same.
func (l *Links) refused(p *peer, err error) error {
	if p.state != linkUp {
		return l.noRoom(p.rank) // it was to confirm what a dead peer holds
	}
	if errors.Is(err, syscall.ENOMEM) && p.posted != p.done && p.signalled != p.done {
		return transport.ErrAgain
	}
	l.lose(p, causeLocal, fmt.Errorf("the device of this rank failed: posting a request: %w", err))
	return l.noRoom(p.rank)
}

func errRank(rank, size int) error {
	return fmt.Errorf("transport: rank %d: the job has %d ranks", rank, size)
}

// usable returns the peer if it can take a request, else why not.
func (l *Links) usable(to int) (*peer, error) {
	if uint(to) >= uint(len(l.peers)) {
		return nil, errRank(to, len(l.peers))
	}
	p := l.peers[to]
	if p.posted-p.done >= p.limit || l.budget.used >= l.budget.mark && l.crowded() {
		return nil, l.noRoom(to)
	}
	return p, nil
}

// message posts a request, wr, with the bytes of head and then payload: inline if possible, else
// from a bounce buffer.
func (l *Links) message(p *peer, wr *verbs.SendWR, head, payload []byte, flags verbs.SendFlags) error {
	n := len(head) + len(payload)
	if n <= l.inline {
		l.smallS[0], l.smallS[1] = verbs.SGE{Data: head}, verbs.SGE{Data: payload}
		wr.SGList = l.smallS[:]
		err := l.post(p, wr, kindSend, verbs.SendInline|flags)
		l.smallS[1].Data = nil
		return err
	}
	slot, buf, ok := l.bounce.Get()
	if !ok {
		return transport.ErrAgain
	}
	copy(buf[copy(buf, head):], payload)
	l.smallS[0] = verbs.SGE{Data: buf[:n], LKey: l.bounce.LKey()}
	wr.SGList = l.smallS[:1]
	// Signalled: the completion returns the bounce buffer.
	err := l.post(p, wr, kindBounce|uint64(slot)<<slotShift, verbs.SendSignaled|flags)
	if err != nil {
		l.bounce.Put(slot)
	}
	return err
}

// SendRndv sends a rendezvous request. It is solicited, so that a device that works by itself
// begins the read while its program computes.
func (l *Links) SendRndv(to int, h *transport.RndvHdr) error {
	p, err := l.usable(to)
	if err != nil {
		return err
	}
	if len(h.Extra) > format.MaxExtra {
		return fmt.Errorf("transport/%s: a rendezvous header of %d bytes, the limit is %d", l.cfg.Mode, len(h.Extra), format.MaxExtra)
	}
	return l.message(p, &l.small, l.smallB[:format.PutRndv(l.smallB[:], h)], nil, verbs.SendSolicited)
}

// SendMarked sends a message of at most format.MaxSmall bytes, headers included, with immediate
// data 0, which marks a software rendezvous (TMO 2.6). msg is copied.
func (l *Links) SendMarked(to int, msg []byte) error {
	p, err := l.usable(to)
	if err != nil {
		return err
	}
	return l.message(p, &l.marked, msg, nil, 0)
}

// SendFin tells the sender of rendezvous appCtx that its buffer was read.
func (l *Links) SendFin(to int, appCtx uint32) error {
	p, err := l.usable(to)
	if err != nil {
		return err
	}
	return l.message(p, &l.small, l.smallB[:format.PutFin(l.smallB[:], appCtx)], nil, 0)
}

// SendCtrl sends an untagged message, ordered with the others; msg is copied.
func (l *Links) SendCtrl(to int, msg []byte) error {
	p, err := l.usable(to)
	if err != nil {
		return err
	}
	if len(msg) > format.MaxCtrl {
		return fmt.Errorf("transport/%s: a control message of %d bytes, the limit is %d", l.cfg.Mode, len(msg), format.MaxCtrl)
	}
	return l.message(p, &l.small, l.smallB[:format.PutCtrl(l.smallB[:])], msg, 0)
}
