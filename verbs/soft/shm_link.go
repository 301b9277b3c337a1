//go:build linux

package soft

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/tagmatch/tagmatch/internal/shmring"
)

type shmState uint8

const (
	shmIdle       shmState = iota // connects at the first send
	shmConnecting                 // or waits for a dial's result
	shmUp
	shmDying // the peer is gone; its last packets are received
	shmDead
)

// shmLink is the link to one peer. Owned by the device's owner.
type shmLink struct {
	w     *shmWire
	addr  *address
	peer  *shmPeer // nil until up
	state shmState
	hot   bool
	lent  bool // a payload from the ring is lent
	owing bool // in shmWire.owing

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

// send writes a packet to the peer's ring.
func (l *shmLink) send(h *header, head, body []byte) bool {
	if l.state != shmUp {
		return l.sendDown()
	}
	p := l.peer
	meta := uint32(h.op) | uint32(h.flags)<<metaFlags | uint32(h.status)<<metaStatus
	id := uint64(h.psn)<<32 | uint64(h.qpn)
	var ok bool
	if h.imm|h.rkey == 0 && h.addr == 0 && h.total == uint64(len(head)+len(body)) {
		ok = p.tx.Push(meta|metaTotal, id, nil, head, body)
	} else if h.imm|h.rkey == 0 && h.addr|h.total == 0 {
		ok = p.tx.Push(meta, id, nil, head, body)
	} else {
		ext := shmring.Ext{uint64(h.imm) | uint64(h.rkey)<<32, h.addr, h.total}
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
func decodePacket(p *shmring.Packet, h *header) error {
	op := opcode(p.Meta & metaOp)
	if op < opSend || op >= opEnd {
		return fmt.Errorf("protocol violation: packet with unknown opcode %d", op)
	}
	n := uint32(len(p.Payload))
	*h = header{op: op, flags: uint8(p.Meta >> metaFlags), status: uint8(p.Meta >> metaStatus), length: n,
		qpn: uint32(p.ID), psn: uint32(p.ID >> 32)}
	if p.Meta&metaTotal != 0 {
		h.total = uint64(n)
	}
	if p.HasExt {
		h.imm, h.rkey, h.addr, h.total = uint32(p.Ext[0]), uint32(p.Ext[0]>>32), p.Ext[1], p.Ext[2]
	}
	return nil
}

// sendDown is send while there is no ring.
func (l *shmLink) sendDown() bool {
	if l.state == shmIdle {
		l.state = shmConnecting
		l.w.conns.connect(l.addr)
	}
	return false
}

// maxPayload is that of both ends' rings, which have one size.
func (l *shmLink) maxPayload() int     { return shmring.MaxPayload(l.w.env.cfg.RingBytes) }
func (l *shmLink) maxReadPayload() int { return l.maxPayload() }

// memory is direct access to the peer's memory where the kernel allows it.
func (l *shmLink) memory() remoteMemory {
	if l.state != shmUp || !l.peer.direct {
		return nil
	}
	return l.peer
}

// close ends the link. The peer is told that this was on purpose.
func (l *shmLink) close() {
	if l.state == shmDead {
		return
	}
	l.sayBye(shmBye)
	l.w.down(l, nil)
}

// sayBye tells the peer why the socket is about to be closed.
func (l *shmLink) sayBye(why byte) {
	if l.peer != nil {
		_ = unix.Send(l.peer.sock, []byte{why}, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
	}
}

// giveBack tells the writer what is free, when it is worth it, and wakes it if it waits for that.
func (l *shmLink) giveBack() {
	if l.state <= shmDying && l.peer.rx.Release() {
		l.peer.signal()
	}
}

// wrap names the peer in an error.
func (l *shmLink) wrap(err error) error {
	return fmt.Errorf("shm: link to rank %d (pid %d): %w", l.addr.rank, l.addr.pid, err)
}
