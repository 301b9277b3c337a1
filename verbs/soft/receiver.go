package soft

import (
	"fmt"

	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/wire"
)

// fromWire is a device as its wires see it. It implements wire.Receiver.
type fromWire Device

// Receive receives a packet. No field of it can be trusted.
func (w *fromWire) Receive(l wire.Link, h *wire.Header, payload []byte) (ok, more bool) {
	d := (*Device)(w)
	i := h.QPN & qpIndexMask
	if int(i) >= len(d.qps) || d.qps[i] == nil || d.qps[i].num != h.QPN {
		return d.stray(l, h, payload, wire.Destroyed), true
	}
	q := d.qps[i]
	if !sameLink(q.link, l) {
		if q.link == nil && q.state == verbs.QPSErr { // the peer reaches this device, which has failed to reach the peer
			return d.stray(l, h, payload, 0), true
		}
		// The peer may have connected its QP before this device has: its packets wait for RTR. All
		// others are dropped.
		if q.state == verbs.QPSInit || q.state == verbs.QPSReset && !q.used {
			if h.Op == wire.OpDisconnected { // it holds up nobody: RTR may never come
				q.missed = &missed{l, *h}
				return true, true
			}
			d.nic.comesEarly(q)
			return false, true
		}
		return !d.nic.silent() || q.link != nil || d.stray(l, h, payload, 0), true
	}
	if len(payload) != int(h.Length) {
		d.violation(l, "a packet of %d bytes says that it has %d", len(payload), h.Length)
		return true, true
	}
	if h.Op == wire.OpSend {
		ok = q.recvSend(l, h, payload)
	} else {
		ok = q.recvOther(l, h, payload)
	}
	more = true
	if c := d.draining; c != nil && c.due() {
		c.handOver()
		more = c.stopped == 0
	}
	return ok, more
}

// mostLingering is how many queue pairs of a link, at most, may linger for strays to be answered
// later.
const mostLingering = 1 << 10

// stray receives a packet for a QP that does not exist, or has failed (imm 0), or for no QP. It
// answers the last packet of each request with that: later if there is no room, as both ends of a
// link may have only strays in their full rings. False: too many answers wait.
func (d *Device) stray(l wire.Link, h *wire.Header, payload []byte, imm uint32) bool {
	switch h.Op {
	case wire.OpSend, wire.OpWrite, wire.OpReadReq, wire.OpPushReq:
		if h.Flags&wire.FlagLast == 0 {
			return true
		}
		d.scratch = wire.Header{Op: wire.OpDisconnected, Flags: wire.FlagFirst | wire.FlagLast, Imm: imm, Addr: uint64(h.QPN)}
		if !l.Send(&d.scratch, nil, nil) {
			return d.answerLater(l, h.QPN, imm)
		}
		d.dirty = true
	case wire.OpDisconnected:
		if h.QPN == 0 {
			d.recvDisconnected(l, h)
		}
	case wire.OpTell:
		d.lines.receive(l, h, payload)
	}
	return true
}

// answerLater has a lingering queue pair tell the peer that there is none of that number, or that
// it has failed. False: too many linger.
func (d *Device) answerLater(l wire.Link, num, imm uint32) bool {
	n := 0
	for _, g := range d.lingering {
		if g.link != l {
			continue
		}
		if n++; g.num == num && g.attr.DestQPN == 0 {
			return true
		}
	}
	if n >= mostLingering {
		return false
	}
	d.linger(num, l, 0, 0, imm)
	return true
}

// recvOther receives all packets but those of a SEND.
func (q *queuePair) recvOther(l wire.Link, h *wire.Header, payload []byte) bool {
	switch h.Op {
	case wire.OpWrite:
		return q.recvWrite(l, h, payload)
	case wire.OpReadReq:
		q.recvReadReq(l, h)
	case wire.OpReadResp:
		q.recvReadResp(l, h, payload)
	case wire.OpPushReq:
		q.recvPushReq(l, h, payload)
	case wire.OpPushResp:
		q.recvPushResp(l, h)
	case wire.OpAck:
		q.recvAck(l, h)
	case wire.OpNak:
		q.recvNak(l, h)
	case wire.OpDisconnected:
		q.d.recvDisconnected(l, h)
	default:
		q.d.violation(l, "unknown packet opcode %d", h.Op)
	}
	return true
}

// Place returns the destination of a piece of an RDMA READ, if it is contiguous, else nil.
func (w *fromWire) Place(l wire.Link, h *wire.Header) []byte {
	q, i := w.placing(l, h)
	if q == nil || q.sq[i&q.mask].status != 0 {
		return nil
	}
	b, _ := q.target(q.list(i), q.work(i).off, uint64(h.Length))
	if len(b) != int(h.Length) {
		return nil
	}
	return b
}

// PlaceGone fails the RDMA READ that Place has named the destination of.
func (w *fromWire) PlaceGone(l wire.Link, h *wire.Header) {
	if q, i := w.placing(l, h); q != nil {
		q.readFails(&q.sq[i&q.mask], verbs.WCLocAccessErr)
	}
}

// placing finds the RDMA READ that h says to have the next piece of; nil: there is none.
func (w *fromWire) placing(l wire.Link, h *wire.Header) (q *queuePair, i uint32) {
	d := (*Device)(w)
	k := h.QPN & qpIndexMask
	if int(k) >= len(d.qps) || d.qps[k] == nil {
		return nil, 0
	}
	q = d.qps[k]
	if q.num != h.QPN || q.link != l || h.Op != wire.OpReadResp || q.state != verbs.QPSRTS || q.rdq.len() == 0 {
		return nil, 0
	}
	front := q.rdq.front()
	i = front.index
	if front.taken != 0 || h.PSN-q.psn != i || h.Addr != q.work(i).off {
		return nil, 0
	}
	return q, i
}

// LinkDown fails the queue pairs of a link.
func (w *fromWire) LinkDown(l wire.Link, err error) { (*Device)(w).linkDown(l, err) }

// linkDown fails the queue pairs of a link, drops the lingering ones that have nothing to send, and
// ends the line.
func (d *Device) linkDown(l wire.Link, err error) {
	for _, q := range d.qps {
		if q != nil && q.link == l {
			if q.peerLost() || d.nic.unheard(q) {
				d.event(verbs.AsyncEvent{Type: verbs.EventQPFatal, QP: q.num, Err: err})
			}
			q.link = nil
		}
	}
	keep := d.lingering[:0]
	for _, g := range d.lingering {
		if g.link == l {
			g.link = nil
		} else if g.discDue {
			keep = append(keep, g)
		}
	}
	d.lingering = keep
	d.lines.end(l, err)
}

// violation breaks a link whose peer has violated the protocol.
func (d *Device) violation(l wire.Link, format string, args ...any) {
	l.Accuse()
	d.linkDown(l, fmt.Errorf("%w: %s", verbs.ErrProtocol, fmt.Sprintf(format, args...)))
}
