package coll

// blocks divides a vector into n blocks of whole elements, one for each rank: all have the same
// size but the last ones, which may be shorter or empty.
type blocks struct {
	x    []byte
	size int // bytes of a block
}

func (c *call) blocks(x []byte) blocks {
	n := len(x) / c.element
	return blocks{x, (n + c.size() - 1) / c.size() * c.element}
}

// block is block i.
func (b blocks) block(i int) []byte { return part(b.x, i*b.size, b.size) }

// part is up to n bytes of b from byte at on.
func part(b []byte, at, n int) []byte {
	at = min(at, len(b))
	return b[at:min(at+n, len(b))]
}

// piece is how many bytes a message of a chain has.
const piece = 128 << 10

// pieces is how many parts of n bytes b has.
func pieces(b []byte, n int) int { return (len(b) + n - 1) / n }
