package sim

import "bytes"

// deliveries are the messages to a rank, those of one source in the order of sending.
type deliveries []*delivery

// assign finds the first message that fits a receive and has no other. A truncated message may look
// like several: where none is free, receives that fit other messages are moved.
func (d deliveries) assign(o *op) bool {
	for _, m := range d {
		if m.recv == nil && m.fits(o) {
			m.recv = o
			return true
		}
	}
	return d.displace(o, map[*delivery]bool{})
}

func (d deliveries) displace(o *op, tried map[*delivery]bool) bool {
	for _, m := range d {
		if tried[m] || !m.fits(o) {
			continue
		}
		tried[m] = true
		if m.recv == nil || d.displace(m.recv, tried) {
			m.recv = o
			return true
		}
	}
	return false
}

// sort puts receives that could have each other's messages into the order of sending.
func (d deliveries) sort() {
	for i, m := range d {
		for _, n := range d[i+1:] {
			if m.alike(n) && m.src == n.src && m.recv.order > n.recv.order {
				m.recv, n.recv = n.recv, m.recv
			}
		}
	}
}

// fits reports whether this message may be what a receive got.
func (d *delivery) fits(o *op) bool { return d.src == o.st.Source && d.couldBe(o) }

// alike reports whether the receives of two messages could have each other's.
func (d *delivery) alike(e *delivery) bool {
	return d.recv != nil && e.recv != nil && d.couldBe(e.recv) && e.couldBe(d.recv)
}

// resemble reports whether the receives of two messages to a rank could have each other's, where
// that makes a difference: of equal messages only where one of the two receives may have gone back
// behind the other, which was posted later.
func (w *world) resemble(r *rank, d, e *delivery) bool {
	return d.alike(e) && (!bytes.Equal(d.send.content, e.send.content) || w.wentBack(r, d.recv) || w.wentBack(r, e.recv))
}
