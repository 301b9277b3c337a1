package soft

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/tagmatch/tagmatch/verbs/soft/internal/wire"
)

// Where shared memory does not work between two devices, they use TCP instead. Shared memory may
// fail when a device is opened, whose address then has no socket name, or when two devices connect:
// connPeer in package dial says why both ends then agree to leave the wire. Nothing has been sent
// or received over the wire by then, so that queue pairs can change to the other wire's link.

// LinkYielded moves the queue pairs of a link that will not come up to the next wire that reaches
// the peer, or fails them.
func (w *fromWire) LinkYielded(l wire.Link, a *wire.Address, err error) {
	d := (*Device)(w)
	next, name, none := d.linkTo("modify_qp", a)
	if none != nil {
		d.linkDown(l, fmt.Errorf("%w; %w", err, none))
		return
	}
	d.tellYield(a, name, err)
	d.move(l, next, name)
}

// LinkUp leaves the wires that are preferred to l's and have no connection to the peer, which has
// connected over l: it has found that it cannot use them.
func (w *fromWire) LinkUp(l wire.Link, a *wire.Address) {
	d := (*Device)(w)
	for _, w := range d.wires {
		y, ok := w.(wire.Yielder)
		if !ok { // it stays preferred to what follows
			return
		}
		why := fmt.Errorf("rank %d cannot use it, and has connected over another wire", a.Rank)
		if old, ok := y.Yield(a, why); ok {
			_, name, err := d.linkTo("modify_qp", a)
			if err != nil {
				return // unreachable
			}
			d.tellYield(a, name, why)
			d.move(old, l, name)
		}
	}
}

func (d *Device) tellYield(a *wire.Address, name string, why error) {
	if log := d.cfg.Logger; log != nil {
		log.Warn("shared memory does not work with a rank, another wire takes over", "rank", d.cfg.Rank, "peer", a.Rank,
			"wire", name, "why", why)
	}
}

// move gives the queue pairs and the line of a link that has carried nothing another one.
func (d *Device) move(from, to wire.Link, name string) {
	if from == nil {
		return
	}
	for _, q := range d.qps {
		if q != nil && q.link == from {
			q.route(to, name)
		}
	}
	for _, g := range d.lingering {
		if g.link == from {
			g.route(to, name)
		}
	}
	d.lines.move(from, to)
}

// route points a queue pair at a link.
func (q *queuePair) route(l wire.Link, name string) {
	q.link, q.wire, q.maxPay = l, name, l.MaxPayload()
}

// linkTo returns the link to another device over the first wire that reaches it, and that wire's
// name, for the call op.
func (d *Device) linkTo(op string, a *wire.Address) (l wire.Link, name string, err error) {
	name, err = d.firstWire(op, a, func(w wire.Wire) (err error) {
		l, err = w.Connect(a)
		return err
	})
	return l, name, err
}

// firstWire names the first wire with which reach succeeds for the device at a.
func (d *Device) firstWire(op string, a *wire.Address, reach func(wire.Wire) error) (string, error) {
	errs := make([]error, 0, len(d.wires))
	for _, w := range d.wires {
		if w == wire.Wire(d.selfWire) {
			continue
		}
		err := reach(w)
		if err == nil {
			return w.Name(), nil
		}
		errs = append(errs, fmt.Errorf("%s: %w", w.Name(), err))
	}
	return "", fail(op, syscall.EHOSTUNREACH, fmt.Sprintf("no wire reaches rank %d: %v", a.Rank, errors.Join(errs...)))
}

// wireNames lists the open wires.
func (d *Device) wireNames() (names []string) {
	for _, w := range d.wires {
		names = append(names, w.Name())
	}
	return names
}

// Missing returns why the device has no shared memory although Config.Wires names it, else nil.
func (d *Device) Missing() error { return d.missing }
