package shmring

import (
	"fmt"
	"math/bits"
	"sync/atomic"
)

// Consumer is the reading end of a ring.
type Consumer struct {
	data     lines
	ctl      *control
	mask     uint64
	shift    uint64
	pos      uint64 // next line to read
	reported uint64 // pos as last reported to the writer
	size     uint64 // lines of the packet that Peek returned
	all      uint64 // lines that the ring can have; mask is of those that it has
	grants   grants
}

// Packet is a packet that Peek returned. Payload is a slice of the ring, valid until the first
// Release after Advance.
type Packet struct {
	Meta    uint32
	HasExt  bool
	ID      uint64
	Ext     Ext
	Payload []byte
}

// ProtocolError is a violation of the ring's rules by its writer.
type ProtocolError struct {
	Word uint64
	Line uint64
	What string
}

func (e *ProtocolError) Error() string {
	return fmt.Sprintf("shmring: bad packet word %#016x in line %d: %s", e.Word, e.Line, e.What)
}

// NewConsumer makes the reading end over mem, which must be zero, and stay mapped and reachable
// while the Consumer and payloads from it are used. The ring is cold.
func NewConsumer(mem []byte) (*Consumer, error) {
	n, all, err := checkMemory(mem)
	if err != nil {
		return nil, err
	}
	c := &Consumer{data: linesOf(mem), ctl: controlOf(mem), mask: n - 1, shift: uint64(bits.TrailingZeros64(n)), all: all}
	c.RevokeAll()
	return c, nil
}

// Empty reports whether there is no packet.
func (c *Consumer) Empty() bool { return atomic.LoadUint64(c.data.word(c.pos&c.mask)) == 0 }

// Probe is a place in a ring to poll: a poller of many rings keeps their probes side by side, so
// that an idle ring costs one load. It is valid until the next Advance or Peek, while its memory is
// mapped.
type Probe struct{ word *uint64 }

// Probe returns the probe for the next packet.
func (c *Consumer) Probe() Probe { return Probe{c.data.word(c.pos & c.mask)} }

// Empty reports whether there is no packet at the probe.
func (p Probe) Empty() bool { return atomic.LoadUint64(p.word) == 0 }

// Peek returns the next packet; ok is false if there is none. It may be called again for the same
// packet, which Advance then takes. After an error the ring is unusable.
func (c *Consumer) Peek(p *Packet) (ok bool, err error) {
	// Copied once: the writer may change it at any time.
	word := atomic.LoadUint64(c.data.word(c.pos & c.mask))
	if word == 0 {
		return false, nil
	}
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
	case formGrow:
		if n != 0 || c.mask+1 == c.all {
			return false, &ProtocolError{word, line, "growth with a length or of a ring that has grown"}
		}
		c.grow()
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

// grow goes on where a writer does that uses all lines. Payloads from before stay until a Release
// that reports lines behind this.
func (c *Consumer) grow() {
	c.pos = grown(c.pos, c.mask+1, c.all)
	c.reported = c.pos
	c.mask, c.shift = c.all-1, uint64(bits.TrailingZeros64(c.all))
}

// PeekShort is Peek for a packet without an extension; of all others ok is false, and of one that
// breaks the rules. What it returns fits into registers.
func (c *Consumer) PeekShort() (meta uint32, id uint64, payload []byte, ok bool) {
	line := c.pos & c.mask
	word := atomic.LoadUint64(c.data.word(line))
	n := word & lengthMask
	size := (shortHeader + n + LineBytes - 1) / LineBytes
	// One comparison for the lap mark and the form.
	if (word^mark(c.pos, c.shift))&(0xff<<markShift|formMask<<formShift) != formShort<<formShift ||
		size > min(c.mask+1-line, (c.mask+1)/4) {
		return 0, 0, nil, false
	}
	c.size = size
	return uint32(word >> metaShift & metaMask), *c.data.id(line), c.data.bytes(line, shortHeader, n), true
}

// Advance takes the packet that Peek or PeekShort returned. Its lines stay until Release.
func (c *Consumer) Advance() {
	c.pos += c.size
	c.checkAdvanced()
}

// Owed reports whether Release would report free lines to the writer.
func (c *Consumer) Owed() bool { return c.pos-c.reported >= (c.mask+1)/4 }

// Release returns the lines of all taken packets to the writer, once they are a quarter of the
// ring: reporting them more often would cost every message another transfer of a cache line.
// Payloads from before become invalid. It returns true if the writer found the ring full before:
// wake it.
func (c *Consumer) Release() (wanted bool) {
	if !c.Owed() {
		return false
	}
	c.checkRelease()
	c.reported = c.pos
	// A full barrier: either the writer sees the room, or this end sees that the writer wants it.
	atomic.StoreUint64(&c.ctl.head, c.pos)
	if atomic.LoadUint32(&c.ctl.want) == 0 {
		return false
	}
	atomic.StoreUint32(&c.ctl.want, 0)
	return true
}

// SetHot tells the writer whether this end polls the ring. After SetHot(false) the caller must
// check the ring once more before it relies on a signal: the store is the full barrier that this
// needs.
func (c *Consumer) SetHot(on bool) {
	state := uint32(cold)
	if on {
		state = hot
	}
	atomic.StoreUint32(&c.ctl.state, state)
}

// Busy returns 0 if the writer is not between SetBusy(true) and SetBusy(false), else a number that
// tells one such time from the next.
func (c *Consumer) Busy() uint32 {
	v := atomic.LoadUint32(&c.ctl.busy)
	return v & -(v & 1)
}
