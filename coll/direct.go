package coll

// Direct algorithms reduce long vectors: a vector has a block for each rank, and each rank gets its
// block of all others and combines them; what is done with the results differs. A rank sends and
// combines the least that is possible, whatever their number. Vectors go through in steps, of up
// to a piece of each block: so ranks combine what is in the cache, and all work at once.

// piece is about how many bytes a message of a long vector has.
const piece = 128 << 10

// direct is such an operation on one rank.
type direct struct {
	c     *call
	at    func(step, rank int) []byte // what is combined for rank in a step
	steps int
	most  int       // bytes that at has
	rooms [2][]byte // of even and odd steps: what the other ranks send, and the result
	done  [2]struct{ recvs, sends int }
}

// run begins each step before it combines the one before. Then it calls after, with the result,
// which begins what follows; that uses room of the library until the step after the next.
func (d *direct) run(into func(step int) []byte, after func(step int, result []byte)) error {
	c, n := d.c, d.c.size()
	room := c.room(2 * d.most * n)
	d.rooms = [2][]byte{room[:d.most*n], room[d.most*n:]}
	d.begin(0)
	for step := range d.steps {
		if step+1 < d.steps {
			d.begin(step + 1)
		}
		result := into(step)
		if err := d.combine(step, result); err != nil {
			return err
		}
		recvs, sends := c.recvs.len(), c.sends.len()
		after(step, result)
		done := &d.done[step%2]
		done.recvs, done.sends = c.recvs.len()-recvs, c.sends.len()-sends
	}
	return c.waitAll()
}

// other is the i-th rank whose operand is combined: first those below this one, downwards.
func (c *call) other(i int) int {
	if i < c.rank() {
		return c.rank() - 1 - i
	}
	return i + 1
}

// begin exchanges a step's operands with all others.
func (d *direct) begin(step int) {
	c := d.c
	n := len(d.at(step, c.rank()))
	for i := range c.size() - 1 {
		c.irecv(c.other(i), d.rooms[step%2][i*d.most:][:n])
	}
	for i := range c.size() - 1 {
		to := c.shifted(i + 1)
		c.isend(to, d.at(step, to))
	}
}

// combine waits for the operands of a step, and combines them; after it this rank's own are free.
// What followed the step before the last one, and still uses its room, ends before.
func (d *direct) combine(step int, into []byte) error {
	c, own, done := d.c, d.at(step, d.c.rank()), d.done[step%2]
	if err := c.waitRecvs(done.recvs); err != nil {
		return err
	}
	if err := c.waitSends(done.sends); err != nil {
		return err
	}
	for i := range c.size() - 1 {
		if err := c.waitRecvs(1); err != nil {
			return err
		}
		other := d.rooms[step%2][i*d.most:][:len(own)]
		if c.other(i) < c.rank() {
			c.combine(into, other, own)
		} else {
			c.combine(into, own, other)
		}
		own = into
	}
	return c.waitSends(c.size() - 1)
}

// result is room for the result of a step.
func (d *direct) result(step int) []byte {
	n := d.c.size()
	return d.rooms[step%2][(n-1)*d.most:][:len(d.at(step, d.c.rank()))]
}

// stepped is a direct operation on vector x, whose steps are as long as each other.
func (c *call) stepped(x []byte) *direct {
	elements := len(x) / c.element
	steps := max(1, pieces(x, c.size()*piece))
	each := (elements + steps - 1) / steps * c.element
	d := &direct{c: c, steps: steps, most: len(c.blocks(x[:each]).block(0))}
	d.at = func(step, rank int) []byte { return c.blocks(part(x, step*each, each)).block(rank) }
	return d
}

// allReduceDirect has each rank send its results to all others.
func allReduceDirect(c *call) error {
	d := c.stepped(c.in)
	return d.run(func(step int) []byte { return d.at(step, c.rank()) }, func(step int, result []byte) {
		for i := range c.size() - 1 {
			c.irecv(c.other(i), d.at(step, c.other(i)))
		}
		for i := range c.size() - 1 {
			c.isend(c.shifted(i+1), result)
		}
	})
}

// reduceDirect has each rank send its results to the root.
func reduceDirect(c *call) error {
	d := c.stepped(c.in)
	if c.rank() != c.root {
		return d.run(d.result, func(_ int, result []byte) { c.isend(c.root, result) })
	}
	return d.run(func(step int) []byte { return d.at(step, c.root) }, func(step int, _ []byte) {
		for i := range c.size() - 1 {
			c.irecv(c.other(i), d.at(step, c.other(i)))
		}
	})
}

// reduceScatterDirect keeps the results.
func reduceScatterDirect(c *call) error {
	each := max(1, piece/c.element) * c.element
	d := &direct{c: c, steps: max(1, pieces(c.out, each)), most: min(each, len(c.out))}
	n := len(c.out)
	d.at = func(step, rank int) []byte { return part(c.in[rank*n:(rank+1)*n], step*each, each) }
	return d.run(func(step int) []byte { return part(c.out, step*each, each) }, func(int, []byte) {})
}
