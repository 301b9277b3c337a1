package progress

import (
	"fmt"
	"math/bits"

	"github.com/tagmatch/tagmatch/internal/trace"
	"github.com/tagmatch/tagmatch/progress/internal/flow"
	"github.com/tagmatch/tagmatch/progress/internal/unexpected"
	"github.com/tagmatch/tagmatch/transport"
)

// sink is the engine as its transport sees it. It is called from inside Poll, so under the engine's
// lock.
type sink Engine

var _ transport.Sink = (*sink)(nil)

// engine is the way into the engine from a callback.
func (s *sink) engine() *Engine {
	e := (*Engine)(s)
	e.inv.callback(e)
	return e
}

// unheard follows a message of a rank that is not heard. Where it is not lost, and this engine
// still meets ranks, the transport is to blame.
func (s *sink) unheard(src int) {
	if s.peers.known(src) == nil && s.broken == nil {
		s.log.Error("message of a rank that does not exist, or is not connected", "src", src, "size", len(s.peers))
	}
}

// Greeting opens the peer's account.
func (s *sink) Greeting(peer int) []byte {
	var window uint64
	s.engine()
	if p, err := s.meets(peer); err == nil {
		window = p.in.Open()
	}
	return encodeGreeting(window)
}

// Connected has the poll that it is called from post what waits for the peer. After an abort that
// is the word of it.
func (s *sink) Connected(peer int, greeting []byte) error {
	s.engine()
	p, err := s.meets(peer)
	if err != nil {
		return err
	}
	window, err := decodeGreeting(greeting)
	if err != nil {
		return protocolError("greeting of rank %d: %v", peer, err)
	}
	p.connected(window)
	p.tellAbort()
	return nil
}

// meets returns the peer that the transport connects to, or why it shall not.
func (s *sink) meets(rank int) (*peer, error) {
	switch {
	case s.broken != nil && s.abort == nil:
		return nil, s.broken
	case uint(rank) >= uint(len(s.peers)):
		s.unheard(rank)
		return nil, unknownSource(rank, len(s.peers))
	case s.peers.loss(rank) != nil:
		return nil, fmt.Errorf("rank %d has given rank %d up: %w", s.cfg.Rank, rank, s.peers.loss(rank))
	}
	return (*Engine)(s).peer(rank), nil
}

func (s *sink) Eager(src int, appCtx uint32, tag uint64, payload []byte) {
	e := s.engine()
	e.eagerLocked(src, appCtx, tag, payload)
	e.inv.settle(e, src)
	s.count(src)
}

// count counts an unexpected message, where a device does too. What came by another device than the
// list's does not count.
func (s *sink) count(src int) {
	if s.off.counts { // this form is inlined
		s.off.count()
	} else if s.off.tags != nil {
		s.countOdd(src)
	}
}

func (s *sink) countOdd(src int) {
	if uint(src) < uint(len(s.peers)) && (*Engine)(s).peer(src).foreign {
		return
	}
	if s.off.count(); s.off.finding {
		(*Engine)(s).keptInDevice(s.off.drop())
	}
}

func (e *Engine) eagerLocked(src int, appCtx uint32, tag uint64, payload []byte) {
	p := e.peers.heard(src)
	if p == nil {
		(*sink)(e).unheard(src)
		return
	}
	if int64(appCtx) != int64(src) {
		p.lose(protocolError("rank %d sends as rank %d", src, appCtx))
		return
	}
	p.consumed(p.arrive(tag, payload))
}

// suspect reports whether misnamed is to look at a tag; this form is inlined.
func (p *peer) suspect(tag uint64) bool {
	return int64(tag) < 0 && ((tag^p.name)&p.names != 0 || len(p.e.contexts.confined) != 0)
}

// misnamed refuses a message whose tag names another rank than its sender, which is lost, or a
// context of which that is no member. Of what a device has matched the transport finds the first,
// Matched the second.
func (p *peer) misnamed(tag uint64) bool {
	if (tag^p.name)&p.names == 0 {
		return p.intrudes(tag)
	}
	p.lose(protocolError("rank %d sends tag %#x, which names rank %d", p.rank, tag, tag&p.names>>bits.TrailingZeros64(p.names)))
	return true
}

// arrive takes an eager message of p, and returns its cost if it is not kept.
func (p *peer) arrive(tag uint64, payload []byte) (consumed uint64) {
	cost := unexpected.EagerCost(len(payload))
	if p.suspect(tag) && p.misnamed(tag) || p.inspected && p.forged(tag) || !p.charge(cost) {
		return 0
	}
	e := p.e
	op, ok := e.posted.Match(tag)
	e.inv.received(e, tag, op)
	var taker *Op
	if ok && op.kind.probe() {
		op, taker = op.probed(Status{p.rank, tag, int64(len(payload))})
		ok = op != nil
	}
	if ok {
		op.unposted()
		p.cameBytes.eager += uint64(len(payload))
		op.deliver(p.rank, tag, payload)
		if e.posted.Len() == 0 {
			e.tr.Enough() // further ones would be unexpected: the program may post receives for them first
		}
		return cost
	}
	if taker == nil && e.contexts.refuses(tag) {
		return cost
	}
	e.unexp.KeepEager(p.rank, tag, payload)
	if t := e.trace; t != nil {
		t.came(trace.Arrived, p, e.unexp.LastSeq(), tag, uint64(len(payload)))
	}
	p.kept(uint64(len(payload)))
	if taker != nil {
		taker.take(tag)
	}
	return 0
}

func (s *sink) Ctrl(src int, msg []byte) {
	s.engine()
	p := s.peers.heard(src)
	if p == nil {
		s.unheard(src)
		return
	}
	c, err := decodeCtrl(msg)
	if err != nil {
		p.lose(protocolError("control message of rank %d: %v", src, err))
		return
	}
	switch c.kind {
	case ctrlWithdraw:
		p.takeWithdraw(c.id)
	case ctrlWithdrawn:
		p.takeWithdrawn(c.id)
	case ctrlUnreadable:
		p.takeUnreadable(c.id)
	case ctrlAbort:
		p.takeAbort(c.body)
	case ctrlHeld, ctrlWant:
		p.takeFlow(c)
	case ctrlNotice:
		p.takeNotice(c.body)
	case ctrlAccused:
		p.lose(transport.ErrAccused)
	default:
		p.lose(protocolError("control message of kind %d from rank %d", c.kind, src))
	}
}

// takeFlow takes a message of flow control.
func (p *peer) takeFlow(c ctrl) {
	var err error
	if c.kind == ctrlHeld {
		var h flow.Held
		if h, err = decodeHeld(c); err == nil {
			p.takeHeld(h)
		}
	} else {
		var w flow.Want
		if w, err = decodeWant(c); err == nil {
			p.takeWant(w)
		}
	}
	if err != nil {
		p.lose(protocolError("flow control message of rank %d: %v", p.rank, err))
	}
}

func (s *sink) PeerLost(peer int, err error) {
	e := s.engine()
	if uint(peer) < uint(len(e.peers)) {
		e.peer(peer).lose(err)
	} else {
		s.unheard(peer)
	}
}
