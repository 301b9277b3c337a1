package soft

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/tagmatch/tagmatch/verbs/soft/internal/wire"
)

// Where shared memory does not work between two devices, TCP takes over. That shows when a device
// opens (it then names no socket in its address), or when two devices connect: package dial says
// why both then come to the same verdict. Nothing was sent or received by then, so queue pairs go
// on over the other wire as if they had been pointed at it in the first place.

// LinkYielded moves what was to use a link over to the next wire that reaches the peer, or fails
// it.
func (w *fromWire) LinkYielded(l wire.Link, a *wire.Address, err error) {
	d := (*Device)(w)
	d.noteYield(a)
	next, name, none := d.linkTo(a)
	if none != nil {
		d.linkDown(l, fmt.Errorf("%w; %w", err, none))
		return
	}
	d.tellYield(a, name, err)
	d.move(l, next, name)
}

// LinkUp hears of a peer that has connected over l. If a wire that goes before that one is still to
// connect, the peer has found out that it cannot.
func (w *fromWire) LinkUp(l wire.Link, a *wire.Address) {
	d := (*Device)(w)
	for _, w := range d.wires {
		y, ok := w.(wire.Yielder)
		if !ok { // it goes before what comes behind it
			return
		}
		why := fmt.Errorf("rank %d cannot use it, and has connected over another wire", a.Rank)
		if old, ok := y.Yield(a, why); ok {
			d.noteYield(a)
			_, name, err := d.linkTo(a)
			if err != nil {
				return // not over a wire of ours
			}
			d.tellYield(a, name, why)
			d.move(old, l, name)
		}
	}
}

func (d *Device) noteYield(a *wire.Address) {
	if d.yielded == nil {
		d.yielded = map[wire.DeviceID]bool{}
	}
	d.yielded[a.ID] = true
}

func (d *Device) tellYield(a *wire.Address, name string, why error) {
	if log := d.cfg.Logger; log != nil {
		log.Warn("shared memory does not work with a rank, another wire takes over", "rank", d.cfg.Rank, "peer", a.Rank,
			"wire", name, "why", why)
	}
}

// move lets the queue pairs of a link that carried nothing use another one.
func (d *Device) move(from, to wire.Link, name string) {
	if from == nil {
		return
	}
	for _, q := range d.qps {
		if q != nil && q.link == from {
			q.route(to, name)
		}
	}
	for _, g := range d.ghosts {
		if g.link == from {
			g.route(to, name)
		}
	}
}

// route points a queue pair at a link.
func (q *queuePair) route(l wire.Link, name string) {
	q.link, q.wire, q.maxPay = l, name, l.MaxPayload()
}

// linkTo finds the link to another device, over the first wire that reaches it, and names the wire.
func (d *Device) linkTo(a *wire.Address) (wire.Link, string, error) {
	errs := make([]error, 0, len(d.wires))
	for _, w := range d.wires {
		if w == wire.Wire(d.self1) || w == d.spare && !d.yielded[a.ID] {
			continue
		}
		l, err := w.Connect(a)
		if err == nil {
			return l, w.Name(), nil
		}
		errs = append(errs, fmt.Errorf("%s: %w", w.Name(), err))
	}
	return nil, "", fail("modify_qp", syscall.EHOSTUNREACH, fmt.Sprintf("no wire reaches rank %d: %v", a.Rank, errors.Join(errs...)))
}

// wireNames are those of the wires that are open.
func (d *Device) wireNames() (names []string) {
	for _, w := range d.wires {
		names = append(names, w.Name())
	}
	return names
}

// Missing is why the device has no shared memory although Config asked for it; nil where it has, or
// was not to have any.
func (d *Device) Missing() error { return d.missing }
