package sim

import "bytes"

// claim is what is known about the message of a receive: what it looks like, or that it was
// withdrawn.
type claim struct {
	op    *op
	taken bool
}

// deliveries are the messages to a rank, those of one source in the order of sending.
type deliveries []*delivery

// assign finds the first message that fits a claim and has no other. A truncated message may look
// like several: where none is free, claims that fit other messages are moved.
func (d deliveries) assign(c claim) bool {
	for _, m := range d {
		if m.recv == nil && m.taken == nil && m.fits(c) {
			m.give(c)
			return true
		}
	}
	return d.displace(c, map[*delivery]bool{})
}

func (d deliveries) displace(c claim, tried map[*delivery]bool) bool {
	for _, m := range d {
		if tried[m] || !m.fits(c) {
			continue
		}
		tried[m] = true
		if m.recv == nil && m.taken == nil || d.displace(m.claim(), tried) {
			m.give(c)
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

func (d *delivery) claim() claim {
	if d.taken != nil {
		return claim{d.taken, true}
	}
	return claim{d.recv, false}
}

func (d *delivery) give(c claim) {
	d.recv, d.taken = c.op, nil
	if c.taken {
		d.recv, d.taken = nil, c.op
	}
}

// fits reports whether a claim fits this message. One that was withdrawn has a sender that has
// ended without an answer.
func (d *delivery) fits(c claim) bool {
	if c.taken {
		return (!d.send.done || d.send.err != nil) && (d.send.tag^c.op.tag)&c.op.mask == 0
	}
	return d.src == c.op.st.Source && d.couldBe(c.op)
}

// alike reports whether the receives of two messages could have each other's.
func (d *delivery) alike(e *delivery) bool {
	return d.recv != nil && e.recv != nil && d.couldBe(e.recv) && e.couldBe(d.recv)
}

// resembles reports whether the receives of two different messages could have each other's.
func (d *delivery) resembles(e *delivery) bool {
	return d.alike(e) && !bytes.Equal(d.send.content, e.send.content)
}
