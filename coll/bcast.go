package coll

import "math/bits"

// disseminate is the barrier of Hensgen, Finkel and Manber: after round k a rank knows that the
// 2^(k+1) ranks up to itself have come.
func disseminate(c *call) error {
	n, rank := c.size(), c.rank()
	for step := 1; step < n; step *= 2 {
		if err := c.exchange((rank+step)%n, nil, (rank-step+n)%n, nil); err != nil {
			return err
		}
	}
	return nil
}

// barrierSwap has all ranks send to all others, so that there is one round.
func barrierSwap(c *call) error { return c.swap(nil, func(int) []byte { return nil }) }

// A binomial tree has the ranks as seen from its root: node i has the nodes i+1, i+2, i+4, ...
// below it, up to its own lowest bit, and above it the node without that bit.

// node is this rank's node of the tree with this root.
func (c *call) node(root int) int { return (c.rank() - root + c.size()) % c.size() }

// ofNode is the rank of a node.
func (c *call) ofNode(root, node int) int { return (node + root) % c.size() }

// below is the most nodes that node may have in its subtree: its lowest bit, and all for node 0.
func (c *call) below(node int) int {
	if node == 0 {
		return 1 << bits.Len(uint(c.size()-1))
	}
	return node & -node
}

// bcastTree sends the vector down a binomial tree.
func bcastTree(c *call) error {
	node, width := c.node(c.root), c.below(c.node(c.root))
	if node != 0 {
		if err := c.recv(c.ofNode(c.root, node-width), c.in); err != nil {
			return err
		}
	}
	for bit := width / 2; bit > 0; bit /= 2 {
		if node+bit < c.size() {
			c.isend(c.ofNode(c.root, node+bit), c.in)
		}
	}
	return c.waitAll()
}

// bcastAll has all ranks receive from the root: inside a host they read its memory side by side.
func bcastAll(c *call) error {
	if c.rank() != c.root {
		return c.recv(c.root, c.in)
	}
	for node := 1; node < c.size(); node++ {
		c.isend(c.ofNode(c.root, node), c.in)
	}
	return c.waitAll()
}

// bcastChain passes the vector on from rank to rank, in pieces: each rank sends and receives it
// once, and all links work at once.
func bcastChain(c *call) error {
	node, count := c.node(c.root), pieces(c.in, piece)
	next, previous := c.ofNode(c.root, node+1), c.ofNode(c.root, node-1+c.size())
	if node != 0 {
		for i := range count {
			c.irecv(previous, part(c.in, i*piece, piece))
		}
	}
	for i := range count {
		if err := c.waitRecvs(1); err != nil {
			return err
		}
		if node < c.size()-1 {
			if err := c.waitSends(c.sends.len() - atOnce); err != nil {
				return err
			}
			c.isend(next, part(c.in, i*piece, piece))
		}
	}
	return c.waitAll()
}

// bcastScatter has the root send each rank a block, which the ranks then send to each other: the
// root sends the vector once instead of log2(n) times.
func bcastScatter(c *call) error {
	b := c.blocks(c.in)
	if c.rank() == c.root {
		for node := 1; node < c.size(); node++ {
			to := c.ofNode(c.root, node)
			c.isend(to, b.block(to))
		}
	} else if err := c.recv(c.root, b.block(c.rank())); err != nil {
		return err
	}
	// The root has all blocks, and still sends its own to the others.
	for step := 1; step < c.size(); step++ {
		from, to := c.shifted(-step), c.shifted(step)
		if c.rank() != c.root {
			c.irecv(from, b.block(from))
		}
		if to != c.root {
			c.isend(to, b.block(c.rank()))
		}
	}
	return c.waitAll()
}

// shifted is the rank by steps after this one, around the ring.
func (c *call) shifted(by int) int { return (c.rank() + by + c.size()) % c.size() }
