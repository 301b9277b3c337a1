package softtest

import (
	"math/rand/v2"
	"slices"
	"sync/atomic"

	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/hook"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/wire"
)

// Lie makes this process a hostile peer: on every device that it opens from now on, a share of the
// packets is changed, dropped, or followed by others, once begin was called. What is changed are
// fields of the header, the first bytes of the payload, and lengths. The seed decides, as far as
// the order of packets does not. No device may be opened meanwhile.
func Lie(seed uint64, share float64) (begin func()) {
	var on atomic.Bool
	hook.Wire = func(env wire.Env, open func(wire.Env) (wire.Wire, error)) (wire.Wire, error) {
		w := &liar{on: &on, share: share, device: env.Receiver, links: map[wire.Link]wire.Link{}}
		env.Receiver = w
		inner, err := open(env)
		if err != nil {
			return nil, err
		}
		w.Wire, w.rng = inner, rand.New(rand.NewPCG(seed, uint64(len(inner.Name()))))
		return w.withExtras(), nil
	}
	return func() { on.Store(true) }
}

// liar is a wire whose links lie. It is also the Receiver of the wire below, whose links are those
// that the device knows only by the lying ones.
type liar struct {
	wire.Wire
	device wire.Receiver
	links  map[wire.Link]wire.Link // the device's, by those of the wire below
	on     *atomic.Bool
	share  float64
	rng    *rand.Rand
	old    []packet // some that were sent
}

// withExtras is w with the further interfaces that the wire below has.
func (w *liar) withExtras() wire.Wire {
	if f, ok := w.Wire.(wire.Flusher); ok {
		return struct {
			*liar
			wire.Flusher
		}{w, f}
	}
	y, yields := w.Wire.(wire.Yielder)
	s, signals := w.Wire.(wire.Signaller)
	if !yields || !signals {
		return w
	}
	return struct {
		*liar
		wire.Yielder
		wire.Signaller
	}{w, yielder{w, y}, s}
}

// yielder is the Yielder of the wire below.
type yielder struct {
	w     *liar
	inner wire.Yielder
}

func (y yielder) Yield(a *wire.Address, why error) (wire.Link, bool) {
	l, ok := y.inner.Yield(a, why)
	return y.w.above(l), ok
}

func (w *liar) Connect(a *wire.Address) (wire.Link, error) {
	l, err := w.Wire.Connect(a)
	return w.above(l), err
}

// above is the device's link for one of the wire below.
func (w *liar) above(l wire.Link) wire.Link {
	if l == nil {
		return nil
	}
	if known := w.links[l]; known != nil {
		return known
	}
	var made wire.Link = &lyingLink{l, w}
	if p, ok := l.(wire.PushLink); ok {
		made = &struct {
			lyingLink
			wire.PushLink
		}{lyingLink{l, w}, p}
	}
	w.links[l] = made
	return made
}

func (w *liar) Receive(l wire.Link, h *wire.Header, payload []byte) (ok, more bool) {
	return w.device.Receive(w.above(l), h, payload)
}
func (w *liar) LinkDown(l wire.Link, err error) { w.device.LinkDown(w.above(l), err) }
func (w *liar) LinkYielded(l wire.Link, a *wire.Address, err error) {
	w.device.LinkYielded(w.above(l), a, err)
}
func (w *liar) LinkUp(l wire.Link, a *wire.Address)      { w.device.LinkUp(w.above(l), a) }
func (w *liar) Place(l wire.Link, h *wire.Header) []byte { return w.device.Place(w.above(l), h) }
func (w *liar) PlaceGone(l wire.Link, h *wire.Header)    { w.device.PlaceGone(w.above(l), h) }
func (w *liar) Places(dst []byte) {
	if c, ok := w.device.(wire.PlaceChecker); ok {
		c.Places(dst)
	}
}

// packet is what Link.Send is given, copied.
type packet struct {
	h    wire.Header
	body []byte
}

// Bytes and numbers of the lies.
const (
	mostOld     = 64      // packets that are remembered
	oldBytes    = 8 << 10 // of a payload that is remembered, at most
	headerBytes = 48      // of a payload, which is where the headers of messages are
	mostLonger  = 64      // bytes that a payload grows by
)

type lyingLink struct {
	wire.Link
	w *liar
}

// Send sends the packet, or something else in its place.
func (l *lyingLink) Send(h *wire.Header, head, body []byte) bool {
	w := l.w
	if !w.on.Load() {
		return l.Link.Send(h, head, body)
	}
	lies := w.rng.Float64() < w.share
	if !lies && len(head)+len(body) > oldBytes {
		return l.Link.Send(h, head, body)
	}
	p := packet{*h, slices.Concat(head, body)}
	honest := packet{*h, slices.Clone(p.body)}
	times := 1
	if lies {
		times = w.lie(&p, l.MaxPayload())
	}
	if times > 0 && !l.Link.Send(&p.h, nil, p.body) {
		return false
	}
	for range times - 1 {
		l.Link.Send(&p.h, nil, p.body)
	}
	w.remember(honest)
	return true
}

// remember keeps a packet, to be sent once more.
func (w *liar) remember(p packet) {
	switch {
	case len(p.body) > oldBytes:
	case len(w.old) < mostOld:
		w.old = append(w.old, p)
	default:
		w.old[w.rng.IntN(mostOld)] = p
	}
}

// lie changes a packet, and returns how often it is to be sent.
func (w *liar) lie(p *packet, mostBytes int) (times int) {
	switch w.rng.IntN(8) {
	case 0, 1:
		w.changeHeader(&p.h)
	case 2, 3, 4:
		w.changePayload(p)
	case 5:
		w.changeLength(p, mostBytes)
	case 6:
		if len(w.old) > 0 {
			o := &w.old[w.rng.IntN(len(w.old))]
			psn, qpn := p.h.PSN, p.h.QPN
			*p = packet{o.h, slices.Clone(o.body)}
			if w.rng.IntN(2) == 0 { // in its place, not out of order
				p.h.PSN, p.h.QPN = psn, qpn
			}
		}
	default:
		return 2 * w.rng.IntN(2)
	}
	return 1
}

// changeHeader changes a field.
func (w *liar) changeHeader(h *wire.Header) {
	switch w.rng.IntN(10) {
	case 0:
		h.Op = wire.Opcode(w.rng.IntN(int(wire.OpEnd) + 1))
	case 1:
		h.Status = uint8(w.number(uint64(h.Status)))
	case 2:
		h.Flags ^= 1 << w.rng.IntN(8)
	case 3:
		h.PSN = uint32(w.number(uint64(h.PSN)))
	case 4:
		h.QPN = uint32(w.number(uint64(h.QPN)))
	case 5:
		h.Imm = uint32(w.number(uint64(h.Imm)))
	case 6:
		h.RKey = uint32(w.number(uint64(h.RKey)))
	case 7:
		h.Addr = w.number(h.Addr)
	case 8:
		h.Total = w.number(h.Total)
	default: // TCP sends it beside the payload
		h.Length = uint32(w.number(uint64(h.Length)))
	}
}

// number is a number that something else than v may be taken for.
func (w *liar) number(v uint64) uint64 {
	switch w.rng.IntN(6) {
	case 0:
		return v + 1
	case 1:
		return v - 1
	case 2:
		return v ^ 1<<w.rng.IntN(64)
	case 3:
		return w.rng.Uint64() >> w.rng.IntN(64)
	case 4:
		return v + uint64(w.rng.IntN(1<<13))
	}
	return []uint64{0, 1, 1<<31 - 1, 1 << 31, 1<<32 - 1, 1 << 32, 1<<63 - 1, 1 << 63, 1<<64 - 1}[w.rng.IntN(9)]
}

// changePayload changes some of the first bytes: a bit, a byte, a number, the upper bits of a tag
// (of a p2p.Comm: its context), or by those of another packet.
func (w *liar) changePayload(p *packet) {
	b := p.body[:min(len(p.body), headerBytes)]
	if len(b) == 0 {
		return
	}
	i := w.rng.IntN(len(b))
	switch w.rng.IntN(6) {
	case 0:
		b[i] ^= 1 << w.rng.IntN(8)
	case 1:
		b[i] = byte(w.rng.Uint32())
	case 2:
		b[i] = byte(w.rng.IntN(16)) // most opcodes and kinds
	case 3:
		v := w.number(0)
		for j := range min(8, len(b)-i) {
			b[i+j] = byte(v >> (8 * j))
		}
	case 4:
		if len(b) >= verbs.TMHSize {
			b[8], b[9] = 1<<7, b[9]&0xf|byte(w.rng.IntN(4))<<4
		}
	default:
		if len(w.old) > 0 {
			o := w.old[w.rng.IntN(len(w.old))].body
			copy(b[i:], o[min(i, len(o)):])
		}
	}
}

// changeLength makes the payload shorter or longer.
func (w *liar) changeLength(p *packet, most int) {
	whole := p.h.Total == uint64(len(p.body))
	if n := w.rng.IntN(len(p.body) + 1); w.rng.IntN(2) == 0 {
		p.body = p.body[:n]
	} else {
		for range min(1+w.rng.IntN(mostLonger), most-len(p.body)) {
			p.body = append(p.body, byte(w.rng.Uint32()))
		}
	}
	p.h.Length = uint32(len(p.body))
	if whole && w.rng.IntN(2) == 0 {
		p.h.Total = uint64(len(p.body))
	}
}
