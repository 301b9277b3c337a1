//go:build invariants

package shmring

import (
	"sync/atomic"

	"github.com/tagmatch/tagmatch/internal/invariant"
)

// What the invariants build checks in a ring: rule "ring" for cursors and words; rule "poison" by
// overwriting lines that the reader releases. Their words are overwritten too: a writer that does
// not clear them is detected.

// checkAdvanced: a packet is taken once. What the writer did to the ring is not checked here: it
// may be hostile.
func (c *Consumer) checkAdvanced() {
	invariant.Check(c.size > 0, "ring", "Advance without a Peek that found a packet")
	c.size = 0
}

// checkRelease overwrites the released lines.
func (c *Consumer) checkRelease() {
	for i, n := c.reported, min(c.pos-c.reported, c.mask+1); n > 0; i, n = i+1, n-1 {
		invariant.Poison(c.data.bytes(i&c.mask, 0, LineBytes))
	}
}

// ownReaders means that all readers are in this process and obey the rules, as in tests. Otherwise
// a reader can write anything to the ring's memory, and must not make the writer panic.
var ownReaders bool

// checkPublish: the lines of the packet, and the one behind, are free; with ownReaders also: their
// words were cleared.
func (p *Producer) checkPublish(line, n uint64) {
	p.checkCursors()
	invariant.Check(p.tail+n < p.limit, "ring", "lines %d to %d are written, line %d is the first that is not free", p.tail, p.tail+n, p.limit)
	if !ownReaders {
		return
	}
	for _, i := range []uint64{line, (p.tail + n) & p.mask} {
		word := atomic.LoadUint64(p.data.word(i))
		invariant.Check(word == 0, "ring", "the word of line %d is not cleared: %#x", i, word)
	}
}

// checkHeld: nothing is published while packets are held, which the reader would see behind it.
func (p *Producer) checkHeld() {
	invariant.Check(p.held == 0, "ring", "a packet is published in line %d, others in front of it are held", p.tail)
}

// checkGrown: the reader, if it obeys the rules, finds no packet where the ring goes on yet.
func (p *Producer) checkGrown() {
	p.checkCursors()
	if ownReaders {
		word := atomic.LoadUint64(p.data.word(p.tail & p.mask))
		invariant.Check(word == 0, "ring", "the ring grows to lines that were used: %#x", word)
	}
}

// checkCursors checks the order of tail, cleared and limit.
func (p *Producer) checkCursors() {
	invariant.Check(p.tail < p.cleared && p.cleared <= p.limit && p.limit-p.tail <= p.mask+1, "ring",
		"line %d is next, words before %d are cleared, lines before %d are free, of %d", p.tail, p.cleared, p.limit, p.mask+1)
}
