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

// receivePieces receives the piece of each other rank, but for the first ones.
func (c *call) receivePieces(first int) error {
	for i := first; i < c.size()-1; i++ {
		if err := c.receiveNew(c.shifted(-i - 1)); err != nil {
			return err
		}
	}
	return c.waitAll()
}

// exchangePieces sends each other rank its piece, and receives theirs. Where there is no room for a
// send it first receives what the ranks before this one may wait to send.
func (c *call) exchangePieces(of func(to int) []byte) error {
	c.keep(of(c.rank()))
	received := 0
	for i := range c.size() - 1 {
		to := c.shifted(i + 1)
		for !c.tryIsend(to, of(to)) {
			if received == i {
				c.awaitRoom()
				continue
			}
			if err := c.receiveNew(c.shifted(-received - 1)); err != nil {
				return err
			}
			received++
		}
	}
	return c.receivePieces(received)
}

func gatherVDirect(c *call) error {
	if c.rank() != c.root {
		return c.send(c.root, c.in)
	}
	c.keep(c.in)
	return c.receivePieces(0)
}

func scatterVDirect(c *call) error {
	if c.rank() == c.root {
		for i := range c.size() - 1 {
			to := c.shifted(i + 1)
			c.isend(to, c.piece(to))
		}
		c.keep(c.piece(c.root))
	} else if err := c.receiveNew(c.root); err != nil {
		return err
	}
	return c.waitAll()
}

func allGatherVDirect(c *call) error {
	return c.exchangePieces(func(int) []byte { return c.in })
}

func allToAllVDirect(c *call) error { return c.exchangePieces(c.piece) }

// piece is what this rank gives to a rank.
func (c *call) piece(to int) []byte { return c.pieces[to] }
