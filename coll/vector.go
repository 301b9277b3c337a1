package coll

import "math"

// The V calls learn lengths from the messages themselves, by matched probes.

// receiveNew makes room for the next message of a rank, of any length, and begins to receive it.
func (c *call) receiveNew(from int) error {
	m, err := c.g.comm.Mprobe(c.ctx, from, c.tag)
	if err != nil {
		return c.giveUp(err)
	}
	n := m.Status().Len
	if n%int64(c.element) != 0 || n > math.MaxInt {
		m.Discard()
		return c.giveUp(invalidf("rank %d sends %d bytes, which are no elements of %d", from, n, c.element))
	}
	b := c.alloc(from, int(n))
	c.recvs.add(begun{m.Irecv(b), from, len(b)})
	return nil
}

// keep makes room for this rank's own piece.
func (c *call) keep(own []byte) { copy(c.alloc(c.rank(), len(own)), own) }

// sendPieces begins to send each other rank its piece.
func (c *call) sendPieces(of func(to int) []byte) {
	for i := range c.size() - 1 {
		to := c.shifted(i + 1)
		c.isend(to, of(to))
	}
}

// receiveAll keeps this rank's own piece, and receives that of each other rank.
func (c *call) receiveAll(own []byte) error {
	c.keep(own)
	for i := range c.size() - 1 {
		if err := c.receiveNew(c.shifted(-i - 1)); err != nil {
			return err
		}
	}
	return c.waitAll()
}

func gatherVDirect(c *call) error {
	if c.rank() != c.root {
		return c.send(c.root, c.in)
	}
	return c.receiveAll(c.in)
}

func scatterVDirect(c *call) error {
	if c.rank() == c.root {
		c.sendPieces(c.piece)
		c.keep(c.piece(c.root))
	} else if err := c.receiveNew(c.root); err != nil {
		return err
	}
	return c.waitAll()
}

func allGatherVDirect(c *call) error {
	c.sendPieces(func(int) []byte { return c.in })
	return c.receiveAll(c.in)
}

func allToAllVDirect(c *call) error {
	c.sendPieces(c.piece)
	return c.receiveAll(c.piece(c.rank()))
}

// piece is what this rank gives to a rank.
func (c *call) piece(to int) []byte { return c.pieces[to] }
