package shmring

import (
	"fmt"
	"math/bits"
	"sync/atomic"

	"github.com/tagmatch/tagmatch/internal/invariant"
)

// Consumer is the reading end of a ring.
type Consumer struct {
	data     lines
	ctl      *control
	mask     uint64
	shift    uint64
	pos      uint64 // next line to read
	reported uint64 // what the writer was told of pos
	size     uint64 // lines of the packet that Peek returned
}

// Packet is what Peek found. Payload lies in the ring: it stays until the first Release after
// Advance.
type Packet struct {
	Meta    uint32
	HasExt  bool
	ID      uint64
	Ext     Ext
	Payload []byte
}

// ProtocolError is what a writer put into a ring against the rules.
type ProtocolError struct {
	Word uint64
	Line uint64
	What string
}

func (e *ProtocolError) Error() string {
	return fmt.Sprintf("shmring: bad packet word %#016x in line %d: %s", e.Word, e.Line, e.What)
}

// NewConsumer makes the reading end over mem, which must be zero and stay reachable, and mapped, as
// long as the Consumer and payloads from it are used. The ring is cold.
func NewConsumer(mem []byte) (*Consumer, error) {
	n, err := checkMemory(mem)
	if err != nil {
		return nil, err
	}
	return &Consumer{data: linesOf(mem), ctl: controlOf(mem), mask: n - 1, shift: uint64(bits.TrailingZeros64(n))}, nil
}

// Empty reports that no packet waits.
func (c *Consumer) Empty() bool { return atomic.LoadUint64(c.data.word(c.pos&c.mask)) == 0 }

// Probe looks at one place of a ring: who polls many rings keeps their probes side by side, and an
// idle ring costs one load. It holds for the ring until the next Advance or Peek, and as long as
// its memory is mapped.
type Probe struct{ word *uint64 }

// Probe is the probe for the next packet.
func (c *Consumer) Probe() Probe { return Probe{c.data.word(c.pos & c.mask)} }

// Empty reports that no packet waits where the probe looks.
func (p Probe) Empty() bool { return atomic.LoadUint64(p.word) == 0 }

// Peek looks at the next packet; ok says that there is one. It may be called again for the same
// packet, which Advance then takes. After an error the ring is unusable.
func (c *Consumer) Peek(p *Packet) (ok bool, err error) {
	line := c.pos & c.mask
	// Copied once: the writer may change it at any time.
	word := atomic.LoadUint64(c.data.word(line))
	if word == 0 {
		return false, nil
	}
	n := word & lengthMask
	if word>>markShift == mark(c.pos, c.shift)>>markShift && word>>formShift&formMask == formShort && n <= shortRoom {
		p.Meta, p.HasExt = uint32(word>>metaShift&metaMask), false
		p.ID = *c.data.id(line)
		p.Payload = c.data.bytes(line, shortHeader, n)
		c.size = 1
		return true, nil
	}
	return c.peekAny(p, word)
}

// peekAny is Peek for every packet.
func (c *Consumer) peekAny(p *Packet, word uint64) (bool, error) {
	line, n, off := c.pos&c.mask, word&lengthMask, uint64(shortHeader)
	rest := c.mask + 1 - line
	if word>>markShift != mark(c.pos, c.shift)>>markShift {
		return false, &ProtocolError{word, line, "wrong lap mark"}
	}
	switch word >> formShift & formMask {
	case formShort:
		p.HasExt = false
	case formExt:
		off = extHeader
		p.HasExt, p.Ext = true, *c.data.ext(line)
	case formSkip:
		if n != 0 || line == 0 {
			return false, &ProtocolError{word, line, "skip with a length or of a whole ring"}
		}
		c.pos += rest
		return c.Peek(p)
	default:
		return false, &ProtocolError{word, line, "unknown form"}
	}
	c.size = (off + n + LineBytes - 1) / LineBytes
	if c.size > rest || c.size > (c.mask+1)/4 {
		return false, &ProtocolError{word, line, "longer than a packet may be"}
	}
	p.Meta, p.ID = uint32(word>>metaShift&metaMask), *c.data.id(line)
	p.Payload = c.data.bytes(line, off, n)
	return true, nil
}

// Advance takes the packet that Peek returned. Its lines stay until Release.
func (c *Consumer) Advance() {
	if invariant.Enabled {
		c.checkAdvance()
	}
	c.pos += c.size
	if invariant.Enabled {
		c.size = 0
	}
}

// Owed reports that Release has something to tell the writer.
func (c *Consumer) Owed() bool { return c.pos-c.reported >= (c.mask+1)/4 }

// Release gives the lines of all packets taken back to the writer, once they are a quarter of the
// ring: telling it more often would cost every message another transfer of a cache line. Payloads
// from before are invalid then. It returns true when the writer has found the ring full before:
// wake it.
func (c *Consumer) Release() (wanted bool) {
	if !c.Owed() {
		return false
	}
	if invariant.Enabled {
		c.checkRelease()
	}
	c.reported = c.pos
	// A full barrier: either the writer sees the room, or we see that it wants it.
	atomic.StoreUint64(&c.ctl.head, c.pos)
	if atomic.LoadUint32(&c.ctl.want) == 0 {
		return false
	}
	atomic.StoreUint32(&c.ctl.want, 0)
	return true
}

// SetHot tells the writer whether this end polls the ring. After SetHot(false) the caller must look
// at the ring once more before it relies on being signalled: the store is the full barrier that
// this needs.
func (c *Consumer) SetHot(on bool) {
	state := uint32(cold)
	if on {
		state = hot
	}
	atomic.StoreUint32(&c.ctl.state, state)
}

// Busy reports what the writer has said with SetBusy.
func (c *Consumer) Busy() bool { return atomic.LoadUint32(&c.ctl.busy) != 0 }
