package soft

import "slices"

// Idle tells whether a device on Fabrics has nothing to do and nothing to say until something is
// posted or a peer sends: polls and Steps would find nothing. Completions that wait in their queues
// are the host's to look for. It is for simulations, by whoever owns the device.
func (d *Device) Idle() bool {
	if len(d.work)+len(d.readers)+len(d.slow)+len(d.events) != 0 {
		return false
	}
	return !slices.ContainsFunc(d.wires, func(w wire) bool { l, ok := w.(*loopWire); return !ok || l.expects() })
}

// expects tells whether something has come that was not received. The end of a link is told once.
func (w *loopWire) expects() bool {
	return w.hasNew.Load() || slices.ContainsFunc(w.links, func(l *loopLink) bool {
		return !l.downTold && !l.closed && l.in.ready.Load() != 0
	})
}

// Refusals is how often a message found no receive and had to wait (RNR); every try counts.
func (d *Device) Refusals() uint64 { return d.rnrs }

// CutShort is how many messages had a match and never came whole, since their queue pair failed.
func (d *Device) CutShort() uint64 { return d.cuts }
