package shmring

import (
	"errors"
	"math/bits"
	"sync/atomic"
)

// Producer is the writing end of a ring.
type Producer struct {
	data    lines
	ctl     *control
	mask    uint64
	shift   uint64
	tail    uint64 // next line to write; line numbers never wrap
	cleared uint64 // the words of lines tail..cleared-1 are 0. Invariant: tail < cleared <= limit
	limit   uint64 // lines before this are known to be free
	last    uint64 // lines of the last long packet
	lastEnd uint64 // the line behind it
	copies  uint32 // twice the number of copies outside the ring
	all     uint64 // lines that the ring can have; mask is of those that it has

	first *uint64 // where the word of the first packet that is held goes
	held  uint64  // the word; 0: none is held

	allocate func() error // see NewProducer
	retry    uint64       // growth was refused: before this line packets that need none do without
	err      error        // see Err
}

// NewProducer makes the writing end over mem, which must be zero but for what NewConsumer has
// stored there, and stay mapped and reachable while the Producer is used. Before it uses more than
// First of that it calls allocate, which sees to it that all can be used, or says why not; nil: it
// can.
func NewProducer(mem []byte, allocate func() error) (*Producer, error) {
	n, all, err := checkMemory(mem)
	if err != nil {
		return nil, err
	}
	return &Producer{data: linesOf(mem), ctl: controlOf(mem), mask: n - 1, shift: uint64(bits.TrailingZeros64(n)),
		cleared: n, limit: n, all: all, allocate: allocate}, nil
}

// Push writes one packet: 24 bits of meta, id, ext if not nil, and head and body one after the
// other. Without room it returns false and writes nothing; the reader signals when it has made some
// (Consumer.Release), unless there is no memory for such a packet (Err). After true the caller must
// ask NeedsSignal. The payload must not be longer than MaxPayload.
func (p *Producer) Push(meta uint32, id uint64, ext *Ext, head, body []byte) bool {
	n := uint64(len(head) + len(body))
	if ext != nil || n > shortRoom || p.tail+1 >= p.cleared {
		return p.pushAny(meta, id, ext, head, body)
	}
	line := p.tail & p.mask
	*p.data.id(line) = id
	if len(head) > 0 {
		p.data.put(line, shortHeader, head)
	}
	p.data.put(line, shortHeader+uint64(len(head)), body)
	p.publish(line, 1, uint64(meta&metaMask)<<metaShift|n)
	return true
}

// Hold is Push of a packet that fits into a line, without an extension. The reader sees it from the
// next Publish on, with all that are held then: no other call may come in between. The packets
// behind the first take no locked instruction. False: Push may take the packet.
func (p *Producer) Hold(meta uint32, id uint64, head, body []byte) bool {
	n := uint64(len(head) + len(body))
	if n > shortRoom {
		return false
	}
	if p.tail+1 >= p.cleared {
		if p.clearTo(p.cleared + clearBatch); p.tail+1 >= p.cleared {
			return false
		}
	}
	line := p.tail & p.mask
	p.checkPublish(line, 1)
	*p.data.id(line) = id
	if len(head) > 0 {
		p.data.put(line, shortHeader, head)
	}
	p.data.put(line, shortHeader+uint64(len(head)), body)
	at, word := p.data.word(line), uint64(meta&metaMask)<<metaShift|n|mark(p.tail, p.shift)
	if p.held == 0 {
		p.first, p.held = at, word
	} else {
		*at = word // not seen before the first
	}
	p.tail++
	return true
}

// Publish shows the reader all packets that are held, of which there is one at least. The caller
// must ask NeedsSignal then.
func (p *Producer) Publish() {
	atomic.StoreUint64(p.first, p.held) // a full barrier, as in publish
	p.held = 0
	if p.cleared-p.tail < clearLow {
		p.clearTo(p.cleared + clearBatch)
	}
}

// HasRoom reports whether Push of a packet with ext and n bytes would find room. As Push does it
// may have the ring grow, or tell the reader that room is wanted.
func (p *Producer) HasRoom(n int) bool {
	_, ok := p.reserve((extHeader + uint64(n) + LineBytes - 1) / LineBytes)
	return ok
}

// publish makes the packet of n lines at line visible, and advances.
func (p *Producer) publish(line, n, word uint64) {
	p.checkHeld()
	p.checkPublish(line, n)
	word |= mark(p.tail, p.shift)
	p.tail += n
	// This store is also the full barrier between the packet and the load of the reader's state in
	// NeedsSignal. With a plain store the reader can park although the ring is not empty.
	atomic.StoreUint64(p.data.word(line), word)
	if n <= shortLines && p.cleared-p.tail < clearLow {
		p.clearTo(p.cleared + clearBatch)
	}
}

// NeedsSignal reports, after a Push, that the reader does not poll this ring: raise its slot in the
// reader's Inbox.
func (p *Producer) NeedsSignal() bool { return atomic.LoadUint32(&p.ctl.state) != hot }

// clearTo clears the words of lines before to, as far as they are free.
func (p *Producer) clearTo(to uint64) {
	if to > p.limit {
		p.refresh()
		to = min(to, p.limit)
	}
	// From the last one back, which takes less time (docs/performance-log.md).
	for i := to; i > p.cleared; i-- {
		*p.data.word((i - 1) & p.mask) = 0
	}
	p.cleared = max(p.cleared, to)
	p.checkCursors()
}

// Long reports, after a Push, that the packet was a long one: Prepare is for such.
func (p *Producer) Long() bool { return p.tail == p.lastEnd }

// Prepare brings the lines of another packet as long as the last long one, and the one behind, into
// this processor's cache, by clearing their words, as far as they are free. The reader has them in
// its own: there a Push of some lines spends more on that than on its copy. It is for a writer that
// waits for an answer to a long packet. In a stream it would only cost.
func (p *Producer) Prepare() {
	p.clearTo(p.tail + p.last + 1)
}

// refresh reads the reader's position, which is ignored if it is impossible.
func (p *Producer) refresh() {
	size := p.mask + 1
	if head := atomic.LoadUint64(&p.ctl.head); head <= p.tail && head+size > p.limit {
		p.limit = head + size
	}
}

// pushAny is Push for packets of any form.
func (p *Producer) pushAny(meta uint32, id uint64, ext *Ext, head, body []byte) bool {
	size := uint64(len(head) + len(body))
	off, form := uint64(shortHeader), uint64(formShort)
	if ext != nil {
		off, form = extHeader, formExt
	}
	n := (off + size + LineBytes - 1) / LineBytes
	if n > p.all/4 {
		panic("shmring: payload above MaxPayload")
	}
	skip, ok := p.reserve(n)
	if !ok {
		return false
	}
	if skip > 0 {
		p.cleared = max(p.cleared, p.tail+skip) // what is skipped does not matter
		p.clearTo(p.tail + skip + 1)
		p.publish(p.tail&p.mask, skip, formSkip<<formShift)
	}
	line := p.tail & p.mask
	// All lines of the packet are asked for by a store each, which takes less time than the copy
	// would, and the line behind.
	p.clearTo(p.tail + n + 1)
	*p.data.id(line) = id
	if ext != nil {
		*p.data.ext(line) = *ext
	}
	dst := p.data.bytes(line, off, size)
	copy(dst[copy(dst, head):], body)
	p.publish(line, n, uint64(meta&metaMask)<<metaShift|form<<formShift|size)
	if n > shortLines {
		p.last, p.lastEnd = n, p.tail
	}
	return true
}

// reserve reports whether the lines of a packet of n and the one behind are free, behind so many to
// be skipped. If they are not the ring grows, if it can.
func (p *Producer) reserve(n uint64) (skip uint64, ok bool) {
	p.err = nil
	if n <= (p.mask+1)/4 {
		if skip = p.mask + 1 - p.tail&p.mask; n <= skip {
			skip = 0
		}
		if p.free(skip + n) {
			return skip, true
		}
		if p.tail < p.retry || p.grow() != nil {
			// A full barrier: either this end sees what the reader frees from here on, or the
			// reader sees the request.
			atomic.StoreUint32(&p.ctl.want, 1)
			return skip, p.free(skip + n)
		}
	} else if p.err = p.grow(); p.err != nil {
		return 0, false
	}
	return 0, true
}

// free reports whether n lines and the one behind them are free.
func (p *Producer) free(n uint64) bool {
	if p.tail+n < p.limit {
		return true
	}
	p.refresh()
	return p.tail+n < p.limit
}

var errAllUsed = errors.New("all lines of the ring are in use")

// grow has the ring use all of its lines, which gives it room for any packet. The line at tail is
// always free: it tells the reader. What it has not read stays where it is.
func (p *Producer) grow() error {
	first := p.mask + 1
	if first == p.all {
		return errAllUsed
	}
	if p.allocate != nil {
		if err := p.allocate(); err != nil {
			p.retry = p.tail + first // a call of the kernel at most each time around
			return err
		}
	}
	word, to := mark(p.tail, p.shift)|formGrow<<formShift, p.data.word(p.tail&p.mask)
	p.tail = grown(p.tail, first, p.all)
	p.mask, p.shift = p.all-1, uint64(bits.TrailingZeros64(p.all))
	p.limit = p.tail + p.all - first // up to the end of the ring
	p.cleared = p.limit
	p.checkGrown()
	atomic.StoreUint64(to, word)
	return nil
}

// Err is why the last Push that returned false could not have memory for its packet, or nil.
func (p *Producer) Err() error { return p.err }

// SetBusy tells the reader whether this end is copying to the reader's memory, outside the ring.
// The store is a full barrier: this end sets busy and then asks whether it may copy (Granted), the
// reader forbids it (Revoke) and then looks at Busy; at least one sees the other.
func (p *Producer) SetBusy(on bool) {
	if on {
		p.copies += 2
		atomic.StoreUint32(&p.ctl.busy, p.copies|1)
	} else {
		atomic.StoreUint32(&p.ctl.busy, p.copies)
	}
}

// Granted reports whether the reader has given that grant (Consumer.Grant) and not revoked it.
func (p *Producer) Granted(grant uint32) bool {
	w := atomic.LoadUint64(&p.ctl.grant)
	return w>>32 == uint64(grant/Grants) && w>>(grant%Grants)&1 == 0
}
