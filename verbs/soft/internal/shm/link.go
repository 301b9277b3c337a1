//go:build linux

package shm

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/tagmatch/tagmatch/internal/shmring"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/wire"
)

type shmState uint8

const (
	shmIdle       shmState = iota // connects at the first Send
	shmConnecting                 // the Connector was asked to connect
	shmUp
	shmDying // the peer has ended, and its last packets are being received (dyingTime)
	shmDead
)

// link is the link to one peer, used by the device's owner alone.
type link struct {
	w     *Wire
	addr  *wire.Address
	peer  *remote // nil until the link is up
	state shmState
	hot   bool // in Wire.hot
	full  bool // the peer was told that its ring is full, which it is since

	last     uint64 // Wire.polls when it delivered a packet last
	deadline int64  // shmDying: when it ends at the latest, by wire.Monotonic
	err      error  // shmDying, shmDead: why; nil: closed by the device
}

// A packet in a ring has a meta word of opcode, metaTotal, flags and status, and an ID of PSN and
// QPN. The other fields of wire.Header are in the extension, which plain sends and acknowledgements
// do not need.
const (
	metaOp     = 0x7f
	metaTotal  = 1 << 7 // Total equals Length; else it is in the extension, or 0
	metaFlags  = 8      // shift
	metaStatus = 16     // shift
)

// pack returns the meta word, without metaTotal, and the ID of a packet.
func pack(h *wire.Header) (meta uint32, id uint64) {
	return uint32(h.Op) | uint32(h.Flags)<<metaFlags | uint32(h.Status)<<metaStatus, uint64(h.PSN)<<32 | uint64(h.QPN)
}

// Send writes a packet to the peer's ring.
func (l *link) Send(h *wire.Header, head, body []byte) bool {
	if l.state != shmUp {
		return l.sendDown()
	}
	p := l.peer
	meta, id := pack(h)
	var ok bool
	if h.Imm|h.RKey == 0 && h.Addr == 0 && h.Total == uint64(len(head)+len(body)) {
		ok = p.tx.Push(meta|metaTotal, id, nil, head, body)
	} else if h.Imm|h.RKey == 0 && h.Addr|h.Total == 0 {
		ok = p.tx.Push(meta, id, nil, head, body)
	} else {
		ext := shmring.Ext{uint64(h.Imm) | uint64(h.RKey)<<32, h.Addr, h.Total}
		ok = p.tx.Push(meta, id, &ext, head, body)
	}
	if !ok {
		return l.noRoom()
	}
	l.full = false
	if p.tx.Long() {
		l.w.long = l
	}
	if p.tx.NeedsSignal() {
		p.signal(h.Urgent())
	}
	return true
}

// Hold implements wire.Holder.
func (l *link) Hold(h *wire.Header, head, body []byte) bool {
	if l.state != shmUp || h.Imm|h.RKey != 0 || h.Addr != 0 || h.Total != uint64(len(head)+len(body)) || h.Urgent() {
		return false
	}
	meta, id := pack(h)
	return l.peer.tx.Hold(meta|metaTotal, id, head, body)
}

// Publish implements wire.Holder.
func (l *link) Publish() {
	l.full = false
	l.peer.tx.Publish()
	if l.peer.tx.NeedsSignal() {
		l.peer.signal(false)
	}
}

// HasRoom implements wire.Link.
func (l *link) HasRoom(n int) bool {
	if l.state != shmUp {
		return l.sendDown()
	}
	return l.peer.tx.HasRoom(n) || l.noRoom()
}

// noRoom is what becomes of a packet that the ring does not take. It returns false.
func (l *link) noRoom() bool {
	if err := l.peer.tx.Err(); err != nil {
		l.breakOff(exhausted, fmt.Errorf("no memory for long packets in the ring: %w", err))
	} else if !l.full && l.peer.tx.NeedsSignal() {
		l.full = true
		l.peer.signal(true) // what is urgent may wait behind what is not
	}
	return false
}

// knownOp reports whether the opcode of a packet is one.
func knownOp(meta uint32) bool { return wire.Opcode(meta&metaOp)-wire.OpSend < wire.OpEnd-wire.OpSend }

// decodeShort decodes a packet without an extension, and n bytes of payload. It is small enough to
// be inlined.
func decodeShort(h *wire.Header, meta uint32, id uint64, n int) {
	// Field by field: a literal is made on the stack, and copied by loads wider than its stores.
	h.Flags, h.Op, h.Status = uint8(meta>>metaFlags), wire.Opcode(meta&metaOp), uint8(meta>>metaStatus)
	h.Length, h.PSN, h.QPN = uint32(n), uint32(id>>32), uint32(id)
	h.Imm, h.RKey, h.Addr, h.Total = 0, 0, 0, 0
	if meta&metaTotal != 0 {
		h.Total = uint64(n)
	}
}

// decodePacket decodes what Send has encoded.
func decodePacket(p *shmring.Packet, h *wire.Header) error {
	if !knownOp(p.Meta) {
		return fmt.Errorf("packet with unknown opcode %d", p.Meta&metaOp)
	}
	decodeShort(h, p.Meta, p.ID, len(p.Payload))
	if p.HasExt {
		h.Imm, h.RKey, h.Addr, h.Total = uint32(p.Ext[0]), uint32(p.Ext[0]>>32), p.Ext[1], p.Ext[2]
	}
	return nil
}

// sendDown is Send on a link that is not up: the first call connects it.
func (l *link) sendDown() bool {
	if l.state == shmIdle {
		l.state = shmConnecting
		l.w.conn.Connect(l.addr)
	}
	return false
}

// Peer implements wire.Link.
func (l *link) Peer() *wire.Address { return l.addr }

// MaxPayload follows from the size of the rings, which is the same at both ends.
func (l *link) MaxPayload() int     { return shmring.MaxPayload(l.w.cfg.RingBytes) }
func (l *link) MaxReadPayload() int { return l.MaxPayload() }

// Memory returns direct access to the peer's memory.
func (l *link) Memory() wire.RemoteMemory {
	if l.state != shmUp {
		return nil
	}
	return l.peer
}

// Close ends the link, and tells the peer that it was closed.
func (l *link) Close() { l.breakOff(bye, nil) }

// Accuse implements wire.Link.
func (l *link) Accuse() { l.breakOff(violated, nil) }

// breakOff ends the link because of err, and tells the peer why: bye, violated or exhausted. A
// socket that is closed without a word means that the process has ended.
func (l *link) breakOff(why byte, err error) {
	if l.state != shmDead && l.peer != nil {
		_ = unix.Send(l.peer.sock, []byte{why}, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
	}
	l.w.down(l, err)
}
