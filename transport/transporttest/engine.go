package transporttest

import (
	"bytes"
	"fmt"

	"github.com/tagmatch/tagmatch/transport"
)

// engine is a Sink that does the duties of an engine over a tag list (TMO 6), as simply as
// possible: with two slices.
type engine struct {
	tr      transport.Transport
	list    transport.TagList
	me      int
	handled uint32
	posted  []*receive // the posted-receive queue: not matched, not cancelled, in posting order
	all     map[uint64]*receive
	unexp   []*arrived
	sends   map[uint32]*sending
	todo    []func() error // posting calls that got ErrAgain
	faults  []string
	forced  int // receives removed by ForceDel
	lost    int
	between func() // called before an unexpected message is counted as handled
}

type receive struct {
	id        uint64
	tag, mask uint64
	buf       []byte
	inList    bool // in the device's list
	matched   bool
	deleting  bool // Del was called
	ended     int
	canceled  bool
	src       int
	got       uint64 // tag
	n         uint64
	err       error
	appCtx    uint32
}

type arrived struct {
	src     int
	tag     uint64
	payload []byte
	rndv    *transport.RndvHdr
}

type sending struct{ region transport.Region }

func newEngine(me int) *engine {
	return &engine{me: me, between: func() {}, all: map[uint64]*receive{}, sends: map[uint32]*sending{}}
}

func (e *engine) fault(format string, args ...any) {
	e.faults = append(e.faults, fmt.Sprintf(format, args...))
}

// try posts now or, on ErrAgain, later.
func (e *engine) try(f func() error) {
	if err := f(); err == transport.ErrAgain {
		e.todo = append(e.todo, f)
	} else if err != nil && e.lost == 0 {
		e.fault("posting: %v", err)
	}
}

func (e *engine) retry() {
	todo := e.todo
	e.todo = nil
	for _, f := range todo {
		e.try(f)
	}
}

// recv posts a receive; offload adds it to the device's list if the overlap rule allows (TMO 6.3).
func (e *engine) recv(id, tag, mask uint64, buf []byte, offload bool) *receive {
	r := &receive{id: id, tag: tag, mask: mask, buf: buf}
	e.all[id] = r
	for i, m := range e.unexp {
		if (m.tag^tag)&mask == 0 {
			e.unexp = append(e.unexp[:i:i], e.unexp[i+1:]...)
			e.take(r, m)
			return r
		}
	}
	for _, p := range e.posted {
		offload = offload && (p.inList || (p.tag^tag)&p.mask&mask != 0)
	}
	if offload {
		err := e.list.Add(id, tag, mask, buf, e.handled)
		r.inList = err == nil
		if err != nil && err != transport.ErrAgain {
			e.fault("Add: %v", err)
		}
	}
	e.posted = append(e.posted, r)
	return r
}

func (e *engine) cancel(r *receive) {
	e.unlink(r) // messages skip it from now on (TMO 6.6)
	if !r.inList {
		r.canceled = true
		r.ended++
		return
	}
	r.deleting = true
	if err := e.list.Del(r.id, e.handled); err != nil {
		e.fault("Del: %v", err)
	}
}

func (e *engine) unlink(r *receive) {
	for i, p := range e.posted {
		if p == r {
			e.posted = append(e.posted[:i:i], e.posted[i+1:]...)
			return
		}
	}
	e.fault("receive %d is not posted", r.id)
}

// arrive handles an unexpected message: search, ForceDel, deliver or queue, then count (TMO 5.3,
// 5.4).
func (e *engine) arrive(m *arrived) {
	for _, r := range e.posted {
		if (m.tag^r.tag)&r.mask != 0 {
			continue
		}
		e.unlink(r)
		if r.inList {
			e.forced++
			// The count with or without this message: both are correct (TMO 5.3).
			if err := e.list.ForceDel(r.id, e.handled+uint32(r.id%2)); err != nil {
				e.fault("ForceDel: %v", err)
			}
		}
		e.take(r, m)
		e.between()
		e.handled++
		return
	}
	e.unexp = append(e.unexp, m)
	e.between()
	e.handled++
}

func (e *engine) take(r *receive, m *arrived) {
	r.matched, r.src, r.got = true, m.src, m.tag
	if m.rndv != nil {
		e.fetch(r, m.rndv)
		return
	}
	copy(r.buf, m.payload)
	r.n = uint64(len(m.payload))
	r.ended++
}

func (e *engine) fetch(r *receive, h *transport.RndvHdr) {
	r.n, r.appCtx = h.Len, h.AppCtx
	va, rkey := h.VA, h.RKey
	dst := r.buf[:min(uint64(len(r.buf)), h.Len)]
	e.try(func() error { return e.tr.Read(r.src, dst, va, rkey, r.id) })
}

func (e *engine) Eager(src int, _ uint32, tag uint64, payload []byte) {
	e.arrive(&arrived{src: src, tag: tag, payload: bytes.Clone(payload)})
}

func (e *engine) Rndv(src int, h *transport.RndvHdr) {
	c := *h
	c.Extra = nil
	e.arrive(&arrived{src: src, tag: h.Tag, rndv: &c})
}

func (e *engine) Fin(_ int, appCtx uint32) {
	s := e.sends[appCtx]
	if s == nil {
		e.fault("FIN of no send, %d", appCtx)
		return
	}
	delete(e.sends, appCtx)
	if err := s.region.Dereg(); err != nil {
		e.fault("Dereg: %v", err)
	}
}

func (e *engine) Ctrl(int, []byte) {}

func (e *engine) ReadDone(id uint64, err error) {
	r := e.all[id]
	r.err = err
	r.ended++
	if err == nil {
		e.try(func() error { return e.tr.SendFin(r.src, r.appCtx) })
	}
}

func (e *engine) PeerLost(int, error) { e.lost++ }

func (e *engine) Matched(id uint64, src int, appCtx uint32, tag uint64) {
	r := e.all[id]
	if r == nil || !r.inList || r.matched || r.ended > 0 {
		e.fault("match of receive %d: %+v", id, r)
		return
	}
	r.matched, r.src, r.got = true, src, tag
	if !r.deleting {
		e.unlink(r)
	}
}

func (e *engine) Delivered(id uint64, n uint64, err error) {
	r := e.all[id]
	if !r.matched {
		e.fault("receive %d is delivered, not matched", id)
	}
	r.n, r.err = n, err
	r.ended++
}

func (e *engine) Incomplete(id uint64, h *transport.RndvHdr) { e.fetch(e.all[id], h) }

func (e *engine) Deleted(id uint64, ok bool) {
	r := e.all[id]
	switch {
	case !r.deleting:
		e.fault("receive %d was deleted unasked", id)
	case ok && r.matched, !ok && !r.matched:
		e.fault("receive %d: deleted %v, matched %v", id, ok, r.matched)
	case ok:
		r.canceled = true
		r.ended++
	}
}
