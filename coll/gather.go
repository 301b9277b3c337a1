package coll

// allGatherBruck is Bruck's algorithm: before round k a rank has the blocks of the 2^k ranks that
// begin with itself, and gets as many more from the rank behind them.
func allGatherBruck(c *call) error {
	n, rank, size := c.size(), c.rank(), len(c.in)
	turned := c.room(len(c.out)) // the blocks, from the own one on
	copy(turned, c.in)
	for step := 1; step < n; step *= 2 {
		count := min(step, n-step) * size
		if err := c.exchange(c.shifted(-step), turned[:count], c.shifted(step), turned[step*size:][:count]); err != nil {
			return err
		}
	}
	copy(c.out[rank*size:], turned)
	copy(c.out, turned[(n-rank)*size:])
	return nil
}

// allGatherDirect has each rank send its block to all others.
func allGatherDirect(c *call) error {
	b := c.ofRanks(c.out)
	for i := range c.size() - 1 {
		from := c.shifted(-i - 1)
		c.irecv(from, b.block(from))
	}
	for i := range c.size() - 1 {
		c.isend(c.shifted(i+1), c.in)
	}
	copy(b.block(c.rank()), c.in)
	return c.waitAll()
}

// allGatherRing passes the blocks around: in step s a rank sends the block of the rank by s before
// it.
func allGatherRing(c *call) error {
	b := c.ofRanks(c.out)
	copy(b.block(c.rank()), c.in)
	for step := range c.size() - 1 {
		out, in := b.block(c.shifted(-step)), b.block(c.shifted(-step-1))
		if err := c.exchange(c.shifted(1), out, c.shifted(-1), in); err != nil {
			return err
		}
	}
	return nil
}

// ofRanks is the blocks of a vector that has one as long for each rank.
func (c *call) ofRanks(x []byte) blocks { return blocks{x, len(x) / c.size()} }

// gatherTree gathers up a binomial tree: a node sends the blocks of its subtree.
func gatherTree(c *call) error {
	node, size := c.node(c.root), len(c.in)
	width := min(c.below(node), c.size()-node) // nodes of the subtree
	all := c.room(width * size)                // from this node on
	copy(all, c.in)
	for bit := 1; bit < width; bit *= 2 {
		if err := c.recv(c.ofNode(c.root, node+bit), all[bit*size:min(2*bit, width)*size]); err != nil {
			return err
		}
	}
	if node != 0 {
		return c.send(c.ofNode(c.root, node-c.below(node)), all)
	}
	copy(c.out[c.root*size:], all)
	copy(c.out, all[(c.size()-c.root)*size:])
	return nil
}

// gatherDirect has all ranks send to the root.
func gatherDirect(c *call) error {
	if c.rank() != c.root {
		return c.send(c.root, c.in)
	}
	b := c.ofRanks(c.out)
	for i := range c.size() - 1 {
		from := c.shifted(i + 1)
		c.irecv(from, b.block(from))
	}
	copy(b.block(c.root), c.in)
	return c.waitAll()
}

// scatterTree sends the blocks of its subtree to each node below.
func scatterTree(c *call) error {
	node, size := c.node(c.root), len(c.out)
	width := min(c.below(node), c.size()-node)
	all := c.room(width * size)
	if node == 0 {
		copy(all, c.in[c.root*size:])
		copy(all[(c.size()-c.root)*size:], c.in)
	} else if err := c.recv(c.ofNode(c.root, node-c.below(node)), all); err != nil {
		return err
	}
	for bit := c.below(node) / 2; bit > 0; bit /= 2 {
		if bit < width {
			c.isend(c.ofNode(c.root, node+bit), all[bit*size:min(2*bit, width)*size])
		}
	}
	copy(c.out, all)
	return c.waitAll()
}

// scatterDirect has the root send to all ranks.
func scatterDirect(c *call) error {
	if c.rank() != c.root {
		return c.recv(c.root, c.out)
	}
	b := c.ofRanks(c.in)
	for i := range c.size() - 1 {
		to := c.shifted(i + 1)
		c.isend(to, b.block(to))
	}
	copy(c.out, b.block(c.root))
	return c.waitAll()
}

// allToAllBruck is Bruck's algorithm: the block for the rank by d after this one goes on by 2^k in
// each round k that is a bit of d. So a rank sends log2(n) messages, of half of the blocks each.
func allToAllBruck(c *call) error {
	n, size := c.size(), len(c.out)/c.size()
	in, out := c.ofRanks(c.in), c.ofRanks(c.out)
	room := c.room(2*len(c.out) + len(c.out))
	turned, packed, got := blocks{room[:len(c.out)], size}, room[len(c.out):2*len(c.out)], room[2*len(c.out):]
	for d := range n {
		copy(turned.block(d), in.block(c.shifted(d)))
	}
	for bit := 1; bit < n; bit *= 2 {
		count := 0
		for d := bit; d < n; d = (d + 1) | bit {
			count += copy(packed[count:], turned.block(d))
		}
		if err := c.exchange(c.shifted(bit), packed[:count], c.shifted(-bit), got[:count]); err != nil {
			return err
		}
		count = 0
		for d := bit; d < n; d = (d + 1) | bit {
			count += copy(turned.block(d), got[count:])
		}
	}
	for d := range n {
		copy(out.block(c.shifted(-d)), turned.block(d))
	}
	return nil
}

// atOnce is how many messages a rank has under way, where it sends many.
const atOnce = 32

// allToAllDirect has each rank send to all others, to the next ones first.
func allToAllDirect(c *call) error {
	in, out := c.ofRanks(c.in), c.ofRanks(c.out)
	copy(out.block(c.rank()), in.block(c.rank()))
	for step := 1; step < c.size(); step++ {
		if step > atOnce {
			if err := c.waitRecvs(1); err != nil {
				return err
			}
			if err := c.waitSends(1); err != nil {
				return err
			}
		}
		from, to := c.shifted(-step), c.shifted(step)
		c.irecv(from, out.block(from))
		c.isend(to, in.block(to))
	}
	return c.waitAll()
}
