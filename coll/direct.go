package coll

// Direct algorithms reduce long vectors: a vector has a block for each rank, and each rank gets its
// block of all others and combines them; what is done with the results differs. A rank sends and
// combines the least that is possible, whatever their number. Vectors go through in steps, so that
// ranks combine what is in the cache.

// stepBytes of a vector are in a step, of which each rank gets leastBytes or more.
// Measured with 2 ranks: half of step is slower from 1 to 4 MiB, for each step costs a rendezvous
// with each rank; twice as much is slower from 16 MiB on.
const (
	stepBytes  = 1 << 20
	leastBytes = 64 << 10
)

// pieceBytes is how many bytes of a step go to each rank.
func (c *call) pieceBytes() int { return max(stepBytes/c.size(), leastBytes) }

// direct is such an operation on one rank.
type direct struct {
	*call
	steps int
	each  int       // bytes of a step: of the vector, or of each block for a reduce-scatter
	most  int       // bytes that at has
	rooms [2][]byte // of even and odd steps: what the other ranks send, and the result
	done  [2]struct{ recvs, sends int }

	scatters bool   // a reduce-scatter: each rank keeps the result of its block
	whole    blocks // its vector
	own      []byte // and where the result of this rank's block goes
}

// reduceDirect is the algorithm.
func reduceDirect(c *call) error {
	if c.kind == reduceScatter {
		return c.reduceBlocks(c.ofRanks(c.in), c.out)
	}
	d := direct{call: c, steps: max(1, pieces(c.in, c.size()*c.pieceBytes()))}
	d.each = (len(c.in)/c.element + d.steps - 1) / d.steps * c.element
	return d.run()
}

// reduceBlocks makes own this rank's block of the combination of b of all ranks. own may be that
// block of b itself.
func (c *call) reduceBlocks(b blocks, own []byte) error {
	d := direct{call: c, scatters: true, whole: b, own: own}
	d.each = max(1, c.pieceBytes()/c.element) * c.element
	d.steps = max(1, pieces(b.block(0), d.each))
	return d.run()
}

// at is what is combined for a rank in a step.
func (d *direct) at(step, rank int) []byte {
	if d.scatters {
		return part(d.whole.block(rank), step*d.each, d.each)
	}
	return d.blocks(part(d.in, step*d.each, d.each)).block(rank)
}

// result is what that becomes: where it stays, or room until it is sent.
func (d *direct) result(step int) []byte {
	switch own := d.at(step, d.rank()); {
	case d.scatters:
		return part(d.own, step*d.each, d.each)
	case d.kind == reduce && d.rank() != d.root:
		return d.rooms[step%2][(d.size()-1)*d.most:][:len(own)]
	default:
		return own
	}
}

// run begins each step before it combines the one before.
func (d *direct) run() error {
	d.most = len(d.at(0, 0))
	room := d.room(2 * d.most * d.size())
	d.rooms = [2][]byte{room[:d.most*d.size()], room[d.most*d.size():]}
	d.begin(0)
	for step := range d.steps {
		if step+1 < d.steps {
			d.begin(step + 1)
		}
		if err := d.reduce(step); err != nil {
			return err
		}
		recvs, sends := d.recvs.len(), d.sends.len()
		d.spread(step)
		done := &d.done[step%2]
		done.recvs, done.sends = d.recvs.len()-recvs, d.sends.len()-sends
	}
	return d.waitAll()
}

// other is the i-th rank whose operand is combined: first those below this one, downwards.
func (d *direct) other(i int) int {
	if i < d.rank() {
		return d.rank() - 1 - i
	}
	return i + 1
}

// begin exchanges a step's operands with all others.
func (d *direct) begin(step int) {
	n := len(d.at(step, d.rank()))
	for i := range d.size() - 1 {
		d.irecv(d.other(i), d.rooms[step%2][i*d.most:][:n])
	}
	for i := range d.size() - 1 {
		to := d.shifted(i + 1)
		d.isend(to, d.at(step, to))
	}
}

// reduce waits for the operands of a step, and combines them; after it this rank's own are free.
// What followed the step before the last one, and still uses its room, ends before.
func (d *direct) reduce(step int) error {
	own, into, done := d.at(step, d.rank()), d.result(step), d.done[step%2]
	if err := d.waitRecvs(done.recvs); err != nil {
		return err
	}
	if err := d.waitSends(done.sends); err != nil {
		return err
	}
	for i := range d.size() - 1 {
		if err := d.waitRecvs(1); err != nil {
			return err
		}
		other := d.rooms[step%2][i*d.most:][:len(own)]
		if d.other(i) < d.rank() {
			d.combine(into, other, own)
		} else {
			d.combine(into, own, other)
		}
		own = into
	}
	return d.waitSends(d.size() - 1)
}

// spread begins to send the result of a step to who wants it.
func (d *direct) spread(step int) {
	switch {
	case d.scatters:
	case d.kind == reduce && d.rank() != d.root:
		d.isend(d.root, d.result(step))
	default:
		for i := range d.size() - 1 {
			d.irecv(d.other(i), d.at(step, d.other(i)))
		}
		for i := 0; i < d.size()-1 && d.kind == allReduce; i++ {
			d.isend(d.shifted(i+1), d.result(step))
		}
	}
}
