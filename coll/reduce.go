package coll

import "math/bits"

// Algorithms combine operands of ranks that follow each other: a op b has a of the lower ranks. So
// operations that do not commute need no algorithms of their own. Only by hosts others may come
// between, where the op commutes. The number of ranks, the algorithm, and which ranks share a host
// decide in which order an element is combined.

// allReduceDoubling is recursive doubling of the vector itself.
func allReduceDoubling(c *call) error { return c.doubling(c.in, c.room(len(c.in))) }

// doubling makes x the combination of all ranks. In each round a rank exchanges what it has with
// the next group as large. t is room as long as x.
func (c *call) doubling(x, t []byte) error {
	p, err := c.pair(x, t)
	if err != nil || p.out {
		return err
	}
	for bit := 1; bit < p.count; bit *= 2 {
		other := p.place ^ bit
		peer := p.rank(other)
		if err := c.exchange(peer, x, peer, t); err != nil {
			return err
		}
		c.combineFrom(other < p.place, x, t)
	}
	return c.unpair(p, x)
}

// combineFrom makes x the combination with t, which is of lower ranks or of higher ones.
func (c *call) combineFrom(lower bool, x, t []byte) {
	if lower {
		c.combine(x, t, x)
	} else {
		c.combine(x, x, t)
	}
}

// pairs are the ranks of an algorithm for a power of two of them. Where there are more the first
// ones meet in pairs, of which one sits it out.
type pairs struct {
	count, extra int // the power, and how many sit out
	place        int // of this rank among count
	out          bool
}

// rank is the rank at a place.
func (p pairs) rank(place int) int {
	if place < p.extra {
		return 2*place + 1
	}
	return place + p.extra
}

// pair combines the vectors of each pair. A rank that sits out has the result of all at its end. t
// is room as long as x.
func (c *call) pair(x, t []byte) (pairs, error) {
	count := 1 << (bits.Len(uint(c.size())) - 1)
	p := pairs{count: count, extra: c.size() - count}
	if p.place = c.rank() - p.extra; p.place >= p.extra {
		return p, nil
	}
	return c.meet(p, x, t)
}

// meet is pair where this rank is in one.
func (c *call) meet(p pairs, x, t []byte) (_ pairs, err error) {
	rank := c.rank()
	if p.out = rank%2 == 0; p.out {
		if err = c.send(rank+1, x); err == nil {
			err = c.recv(rank+1, x)
		}
		return p, err
	}
	p.place = rank / 2
	if err = c.recv(rank-1, t); err == nil {
		c.combine(x, t, x)
	}
	return p, err
}

// unpair sends the result to the rank that sits out.
func (c *call) unpair(p pairs, x []byte) error {
	if p.place < p.extra {
		return c.send(c.rank()-1, x)
	}
	return nil
}

// allReduceHalving is Rabenseifner's algorithm: in each round a rank exchanges half of what it
// still combines; then the rounds go back, and what it has of the result doubles. So it sends few
// messages. Ranks that meet in pairs before send the whole vector once more.
func allReduceHalving(c *call) error {
	x := c.in
	t := c.room(len(x))
	p, err := c.pair(x, t)
	if err != nil || p.out {
		return err
	}
	var halves [64]struct{ own, others []byte } // by round
	own, round := x, 0
	for bit := 1; bit < p.count; bit *= 2 {
		middle := len(own) / c.element / 2 * c.element
		others := own[middle:]
		if own = own[:middle]; p.place&bit != 0 {
			own, others = others, own
		}
		peer := p.rank(p.place ^ bit)
		if err := c.exchange(peer, others, peer, t[:len(own)]); err != nil {
			return err
		}
		c.combineFrom(p.place&bit != 0, own, t[:len(own)])
		halves[round].own, halves[round].others = own, others
		round++
	}
	for round--; round >= 0; round-- {
		peer, h := p.rank(p.place^1<<round), halves[round]
		if err := c.exchange(peer, h.own, peer, h.others); err != nil {
			return err
		}
	}
	return c.unpair(p, x)
}

// allReduceSwap has each rank send its vector to all others, so that there is one round.
func allReduceSwap(c *call) error {
	x, n := c.in, len(c.in)
	room := c.room(c.size() * n)
	operand := func(rank int) []byte {
		if rank == c.rank() {
			return x
		}
		return room[rank*n:][:n]
	}
	if err := c.swap(x, operand); err != nil {
		return err
	}
	sum := operand(0)
	for rank := 1; rank < c.size(); rank++ {
		into := sum
		if rank == c.rank() {
			into = x
		}
		c.combine(into, sum, operand(rank))
		sum = into
	}
	return nil
}

// swap sends x to all other ranks, and receives into room what they send. It waits once where all
// have called it.
func (c *call) swap(x []byte, room func(rank int) []byte) error {
	n := c.size()
	for i := 2; i < n; i++ {
		c.irecv(c.shifted(-i), room(c.shifted(-i)))
	}
	for i := 2; i < n; i++ {
		if err := c.send(c.shifted(i), x); err != nil {
			return c.giveUp(err)
		}
	}
	from := c.shifted(-1)
	if err := c.exchange(c.shifted(1), x, from, room(from)); err != nil {
		return c.giveUp(err)
	}
	return c.waitRecvs(n - 2)
}

// reduceTree combines up a binomial tree. Operations that do not commute end at rank 0, which
// sends the result on.
func reduceTree(c *call) error {
	top := c.root
	if !c.op.commutative {
		top = 0
	}
	node, x, room := c.node(top), c.in, c.room(2*len(c.in))
	t, into, sum := room[:len(x)], x, x // sum is the operand so far
	if c.rank() != c.root {
		into = room[len(x):] // only the root's own vector changes
	}
	for bit := 1; bit < c.below(node) && node+bit < c.size(); bit *= 2 {
		if err := c.recv(c.ofNode(top, node+bit), t); err != nil {
			return err
		}
		c.combine(into, sum, t)
		sum = into
	}
	var err error
	switch {
	case node != 0:
		err = c.send(c.ofNode(top, node-c.below(node)), sum)
	case top != c.root:
		err = c.send(c.root, sum)
	}
	if err == nil && c.rank() == c.root && top != c.root {
		err = c.recv(top, x)
	}
	return err
}

// reduceScatterDoubling reduces all blocks on all ranks, of which each keeps one.
func reduceScatterDoubling(c *call) error {
	room, n := c.room(2*len(c.in)), len(c.out)
	x := room[:len(c.in)]
	copy(x, c.in)
	if err := c.doubling(x, room[len(x):]); err != nil {
		return err
	}
	copy(c.out, x[c.rank()*n:])
	return nil
}

// scanDoubling has, before round k, the combination of this rank's aligned group of 2^k ranks, and
// exchanges it with the next such group. The vector becomes the combination of the lower ranks:
// with this rank for a scan, without for an exclusive one.
func scanDoubling(c *call) error {
	x, room := c.in, c.room(3*len(c.in))
	sum, t, spare := room[:len(x)], room[len(x):2*len(x)], room[2*len(x):]
	copy(sum, x)
	first := c.kind == exScan // x is not yet part of the result
	for bit := 1; bit < c.size(); bit *= 2 {
		peer := c.rank() ^ bit
		if peer >= c.size() {
			continue
		}
		if err := c.exchange(peer, sum, peer, t); err != nil {
			return err
		}
		if peer > c.rank() {
			c.combine(sum, sum, t)
			continue
		}
		if first {
			copy(x, t)
		} else {
			copy(spare, t) // which is needed twice
			c.combine(x, spare, x)
		}
		first = false
		c.combine(sum, t, sum)
	}
	return nil
}

// scanChain passes on, in pieces, the combination of the ranks so far.
func scanChain(c *call) error {
	x, each := c.in, max(1, piece/c.element)*c.element
	count, most := pieces(x, each), min(each, len(x))
	room := c.room(4 * most)
	slot := func(i, of int) []byte { return room[(i%2+of)*most:][:len(part(x, i*each, each))] }
	const received, sent = 0, 2
	first, last := c.rank() == 0, c.rank() == c.size()-1
	if !first && count > 0 {
		c.irecv(c.rank()-1, slot(0, received))
	}
	for i := range count {
		own := part(x, i*each, each)
		out := own
		if !first {
			if i+1 < count {
				c.irecv(c.rank()-1, slot(i+1, received))
			}
			if err := c.waitRecvs(1); err != nil {
				return err
			}
			lower := slot(i, received)
			if c.kind == exScan {
				if err := c.waitSends(c.sends.len() - 1); err != nil { // all but the last one
					return err
				}
				out = slot(i, sent)
			}
			c.combine(out, lower, own)
			if c.kind == exScan {
				copy(own, lower)
			}
		}
		if !last {
			c.isend(c.rank()+1, out)
		}
	}
	return c.waitAll()
}
