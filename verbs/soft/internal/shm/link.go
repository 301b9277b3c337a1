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
	shmIdle       shmState = iota // connects at the first send
	shmConnecting                 // or waits for a dial's result
	shmUp
	shmDying // the peer is gone; its last packets are received
	shmDead
)

// link is the link to one peer. Owned by the device's owner.
type link struct {
	w     *Wire
	addr  *wire.Address
	peer  *remote // nil until up
	state shmState
	hot   bool
	lent  bool // a payload from the ring is lent
	owing bool // in Wire.owing

	last     uint64 // poll in which it delivered
	deadline int64
	err      error
}

// A packet's meta word: op | kind of total | flags | status. The id is psn and qpn. Everything else
// goes into the extension, which plain sends and acknowledgements do not need.
const (
	metaTotal  = 1 << 7 // total equals the packet's length; else it is 0 or in the extension
	metaOp     = 0x7f
	metaFlags  = 8
	metaStatus = 16
)

// Send writes a packet to the peer's ring.
func (l *link) Send(h *wire.Header, head, body []byte) bool {
	if l.state != shmUp {
		return l.sendDown()
	}
	p := l.peer
	meta := uint32(h.Op) | uint32(h.Flags)<<metaFlags | uint32(h.Status)<<metaStatus
	id := uint64(h.PSN)<<32 | uint64(h.QPN)
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
		return false
	}
	if p.tx.NeedsSignal() {
		p.signal()
	}
	return true
}

// decodePacket is the reverse of send.
func decodePacket(p *shmring.Packet, h *wire.Header) error {
	op := wire.Opcode(p.Meta & metaOp)
	if op < wire.OpSend || op >= wire.OpEnd {
		return fmt.Errorf("protocol violation: packet with unknown opcode %d", op)
	}
	n := uint32(len(p.Payload))
	*h = wire.Header{Op: op, Flags: uint8(p.Meta >> metaFlags), Status: uint8(p.Meta >> metaStatus), Length: n,
		QPN: uint32(p.ID), PSN: uint32(p.ID >> 32)}
	if p.Meta&metaTotal != 0 {
		h.Total = uint64(n)
	}
	if p.HasExt {
		h.Imm, h.RKey, h.Addr, h.Total = uint32(p.Ext[0]), uint32(p.Ext[0]>>32), p.Ext[1], p.Ext[2]
	}
	return nil
}

// sendDown is send while there is no ring.
func (l *link) sendDown() bool {
	if l.state == shmIdle {
		l.state = shmConnecting
		l.w.conn.Connect(l.addr)
	}
	return false
}

// MaxPayload is that of both ends' rings, which have one size.
func (l *link) MaxPayload() int     { return shmring.MaxPayload(l.w.cfg.RingBytes) }
func (l *link) MaxReadPayload() int { return l.MaxPayload() }

// Memory is direct access to the peer's memory where the kernel allows it.
func (l *link) Memory() wire.RemoteMemory {
	if l.state != shmUp || !l.peer.direct {
		return nil
	}
	return l.peer
}

// Close ends the link. The peer is told that this was on purpose.
func (l *link) Close() {
	if l.state == shmDead {
		return
	}
	l.sayBye(bye)
	l.w.down(l, nil)
}

// sayBye tells the peer why the socket is about to be closed.
func (l *link) sayBye(why byte) {
	if l.peer != nil {
		_ = unix.Send(l.peer.sock, []byte{why}, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
	}
}

// giveBack tells the writer what is free, when it is worth it, and wakes it if it waits for that.
func (l *link) giveBack() {
	if l.state <= shmDying && l.peer.rx.Release() {
		l.peer.signal()
	}
}

// wrap names the peer in an error.
func (l *link) wrap(err error) error {
	return fmt.Errorf("shm: link to rank %d (pid %d): %w", l.addr.Rank, l.addr.PID, err)
}
