package progress

import (
	"errors"
	"fmt"
	"math"

	"github.com/tagmatch/tagmatch/internal/trace"
	"github.com/tagmatch/tagmatch/progress/internal/unexpected"
	"github.com/tagmatch/tagmatch/transport"
)

// Rendezvous: the sender registers its buffer and sends a request. The receiver that matches it
// reads the message into its own buffer by RDMA, and answers with a FIN, which names the send by
// slot and generation.

// request sends the rendezvous request of op, and gives op a slot. After an error op has none.
func (p *peer) request(op *Op) error {
	e := p.e
	if !p.slotsLeft() {
		return transport.ErrAgain
	}
	h := &e.hdr // not on the stack: it would escape through the interface
	*h = transport.RndvHdr{Tag: op.tag, Len: uint64(len(op.buf))}
	if len(op.buf) != 0 {
		if op.region == nil {
			region, err := e.tr.Register(p.rank, op.buf)
			if err != nil {
				return err
			}
			op.region = region // kept while op is queued
		}
		h.VA, h.RKey = op.region.Addr(), op.region.RKey()
	}
	s, ok := e.sends.take(op)
	if !ok {
		return transport.ErrAgain
	}
	h.AppCtx = s.wire()
	rndvExtra{source: uint32(e.cfg.Rank)}.encode(&e.hdrExtra)
	h.Extra = e.hdrExtra[:]
	if err := e.tr.SendRndv(p.rank, h); err != nil {
		e.sends.release(s)
		return err
	}
	op.slot = s
	return nil
}

// endSend ends a send that has neither a place in a queue nor a slot. Its buffer is deregistered
// first, so that no peer reads it later.
func (op *Op) endSend(st Status, err error) {
	op.deregister()
	op.complete(st, err)
}

func (op *Op) deregister() {
	if r := op.region; r != nil {
		op.region = nil
		if err := r.Dereg(); err != nil {
			op.e.log.Error("send buffer stays registered", "rank", op.e.cfg.Rank, "err", err)
		}
	}
}

// endRequest ends a send that has a slot.
func (op *Op) endRequest(st Status, err error) {
	op.e.sends.release(op.slot)
	op.e.peers[op.peer].requests--
	op.endSend(st, err)
}

// Fin ends the send whose message the receiver has read, or has discarded.
func (s *sink) Fin(src int, appCtx uint32) {
	e := s.engine()
	p := s.peers.heard(src)
	if p == nil {
		s.unheard(src)
		return
	}
	if op := p.requested(appCtx); op != nil {
		p.sentBytes.rndv += uint64(len(op.buf))
		op.endRequest(e.sentStatus(op.tag, len(op.buf)), e.contexts.barredBy(op.tag))
	}
}

// requested finds the send that p names; nil where that send has ended, or never was one to p.
func (p *peer) requested(name uint32) *Op {
	op := p.e.sends.byWire(name)
	if op == nil || op.peer != p.rank {
		p.e.m.Stale++
		return nil
	}
	return op
}

// readState is a rendezvous message at its receiver.
type readState struct {
	src      int
	appCtx   uint32
	rkey     uint32
	va       uint64
	total    uint64 // bytes of the message
	seq      uint64 // unexpected.Message.Seq
	want     uint64 // bytes to read
	posted   uint64 // bytes that reads were posted for
	active   int32  // reads that have not ended
	withdraw bool   // the sender has sent WITHDRAW, and got no answer
	refused  bool   // a device has matched what software would have dropped
	err      error
}

// request identifies a rendezvous request by its sender and the name that the sender gave it.
type request struct {
	src    int
	appCtx uint32
}

func (r *readState) request() request { return request{r.src, r.appCtx} }

// unmatched is r as an unexpected message.
func (r *readState) unmatched() unexpected.Request {
	return unexpected.Request{Name: r.appCtx, RKey: r.rkey, Addr: r.va, Len: r.total}
}

// requested is the opposite of unmatched.
func requested(m *unexpected.Message) readState {
	return readState{src: int(m.Src), appCtx: m.Name, rkey: m.RKey, va: m.Addr, total: m.Len, seq: m.Seq}
}

const maxMessage = math.MaxInt64

// checkRndv checks a request and returns what its receiver needs of it.
func checkRndv(src int, h *transport.RndvHdr) (readState, error) {
	x, err := decodeRndvExtra(h.Extra)
	switch {
	case err != nil:
		return readState{}, protocolError("rendezvous header of rank %d: %v", src, err)
	case int64(x.source) != int64(src):
		return readState{}, protocolError("rank %d sends as rank %d", src, x.source)
	case h.Len > maxMessage || h.VA+h.Len < h.VA:
		return readState{}, protocolError("rank %d offers %d bytes at %#x", src, h.Len, h.VA)
	}
	return readState{src: src, appCtx: h.AppCtx, rkey: h.RKey, va: h.VA, total: h.Len}, nil
}

// Rndv takes a rendezvous request. What a device has matched comes as Matched instead.
func (s *sink) Rndv(src int, h *transport.RndvHdr) {
	e := s.engine()
	if p := s.peers.heard(src); p != nil {
		p.offer(h)
	} else {
		s.unheard(src)
	}
	e.inv.settle(e, src)
	s.count(src)
}

// offer takes a rendezvous request of p.
func (p *peer) offer(h *transport.RndvHdr) {
	e := p.e
	r, err := checkRndv(p.rank, h)
	if err != nil {
		p.lose(err)
		return
	}
	r.seq = e.unexp.NextSeq()
	if p.suspect(h.Tag) && p.misnamed(h.Tag) || p.inspected && p.forged(h.Tag) || !p.charge(unexpected.RecordCost) {
		return
	}
	if t := e.trace; t != nil {
		t.came(trace.Asked, p, r.seq, h.Tag, h.Len)
	}
	op, ok := e.posted.Match(h.Tag)
	e.inv.received(e, h.Tag, op)
	var taker *Op
	if ok && op.kind.probe() {
		op, taker = op.probed(Status{p.rank, h.Tag, int64(h.Len)})
		ok = op != nil
	}
	if ok {
		op.unposted()
		op.read = r
		op.tag = h.Tag
		p.consumed(unexpected.RecordCost)
		op.startRead()
	} else if taker == nil && e.contexts.refuses(h.Tag) {
		p.consumed(unexpected.RecordCost)
		p.fin(r.appCtx)
	} else {
		e.unexp.KeepRequest(p.rank, h.Tag, r.seq, r.unmatched())
		p.kept(r.total)
		if taker != nil {
			taker.take(h.Tag)
		}
	}
}

// pull satisfies a receive by an unexpected rendezvous request.
func (op *Op) pull(m *unexpected.Message) {
	if op.state == opNew {
		op.handle = op.e.posted.Skip() // its place, if it goes back
	}
	op.read = requested(m)
	op.tag = m.Tag
	op.e.peers[m.Src].drop(m)
	op.startRead()
}

// startRead reads the message that op.read describes into op's buffer.
func (op *Op) startRead() {
	r := &op.read
	r.want = min(r.total, uint64(op.room()))
	op.move(opReading)
	if t := op.e.trace; t != nil {
		t.reading(op)
	}
	if r.want == 0 {
		op.readEnded()
		return
	}
	if !op.e.reads.take(op) {
		// 2^24 reads are under way: to wait for a slot would help nobody. The sender hears of it.
		op.e.peers[r.src].fin(r.appCtx)
		op.complete(Status{}, ErrFull)
		return
	}
	op.readMore()
}

// readMore posts the reads that are left, or as many as may be under way. False means that there
// was no room: op waits in peer.readq.
func (op *Op) readMore() bool {
	e, r := op.e, &op.read
	p := e.peers[r.src]
	for r.posted < r.want && r.err == nil {
		dst := op.target(min(r.want-r.posted, e.caps.MaxRead))
		if dst == nil {
			return true
		}
		err := e.tr.Read(r.src, dst, r.va+r.posted, r.rkey, op.slot.id())
		if err == transport.ErrAgain {
			op.unpostedRead()
			p.readq.push(op)
			p.markDirty()
			return false
		}
		if err != nil {
			r.err = err
			break
		}
		r.posted += uint64(len(dst))
		r.active++
		op.postedRead()
	}
	if r.active == 0 {
		op.endRead()
	}
	return true
}

// ReadDone counts a read that has ended. All reads of a receive have the same id, as only their
// number matters.
func (s *sink) ReadDone(id uint64, err error) {
	e := s.engine()
	op := e.reads.byID(id)
	if op == nil || op.read.active == 0 {
		e.log.Error("transport reports a read that was not posted", "id", id)
		return
	}
	r := &op.read
	r.active--
	if op.state == opAbandoned {
		op.abandoned()
		return
	}
	if err != nil && r.err == nil {
		r.err = err
	}
	if op.vec != nil {
		op.arrived()
		if !op.linked && r.posted < r.want && r.err == nil {
			op.readMore()
			return
		}
	}
	if r.active != 0 || r.posted < r.want && r.err == nil {
		return
	}
	if op.linked {
		e.peers[r.src].readq.remove(op)
	}
	op.endRead()
}

// endRead ends the reading of a receive that has a slot and no read under way.
func (op *Op) endRead() {
	if op.revoked() {
		op.e.peers[op.read.src].revoked.push(op)
		return
	}
	op.e.reads.release(op)
	op.readEnded()
}

// readEnded ends a receive whose reads have all ended, or that had nothing to read.
func (op *Op) readEnded() {
	e, r := op.e, op.read
	p := e.peers[r.src]
	if r.err != nil && e.broken != nil {
		op.complete(Status{}, e.broken)
		return
	}
	if op.failsAlone(r.err) {
		return
	}
	if r.err != nil {
		// Any other failed read leaves the connection in error: whatever the cause, nothing more
		// comes from this peer.
		p.lose(r.err)
		op.complete(Status{}, peerError(p.rank, p.lost))
		return
	}
	p.fin(r.appCtx)
	p.cameRndv(r.total)
	op.complete(Status{r.src, op.tag, int64(r.total)}, e.m.truncated(int(r.want), r.total))
}

// failsAlone handles a receive whose reads have ended with err, if that concerns its message alone.
// A message that was withdrawn sends it back to its place. It ends where the memory at one end is
// gone, or cannot be registered. The sender of a message that cannot be written has done its part,
// and its send succeeds, as that of one that is too long for its receive.
func (op *Op) failsAlone(err error) bool {
	p, name := op.e.peers[op.read.src], op.read.appCtx
	switch err {
	case transport.ErrDeregistered:
		if p.lost != nil && !op.read.withdraw {
			op.complete(Status{}, peerError(p.rank, p.lost))
			break
		}
		op.goBack()
		p.sendCtrl(ctrl{kind: ctrlWithdrawn, id: name})
	case transport.ErrUnreadable:
		p.sendCtrl(ctrl{kind: ctrlUnreadable, id: name})
		op.complete(Status{}, fmt.Errorf("%w: the sender's buffer was unmapped or protected before its send had ended", ErrFault))
	case transport.ErrUnwritable:
		p.fin(name)
		op.complete(Status{}, fmt.Errorf("%w: the buffer was unmapped or protected before this receive had ended", ErrFault))
	default:
		if !errors.Is(err, transport.ErrNoMemory) {
			return false
		}
		p.fin(name)
		op.complete(Status{}, err)
	}
	return true
}

// takeUnreadable handles an UNREADABLE of p: it cannot read the buffer of that send.
func (p *peer) takeUnreadable(id uint32) {
	if op := p.requested(id); op != nil {
		op.endRequest(Status{}, fmt.Errorf("%w: the buffer was unmapped or protected before this send had ended", ErrFault))
	}
}
