package progress

import (
	"encoding/binary"

	"github.com/tagmatch/tagmatch/progress/internal/unexpected"
	"github.com/tagmatch/tagmatch/transport"
)

// Short eager messages to one peer that are posted with one hold of the lock (Poster) go as one
// message, EAGERS: what transport and device do for a message they do once for all of them. Each
// keeps its tag, its cost, and its place in the order. Where a device matches tags every message
// goes by itself, as the device must see it.
//
// The body of EAGERS is its messages one after the other, at least one:
//
//	0  tag
//	8  length, at most bundledMost
//	9  payload

const (
	eagersHead = 9 // bytes in front of each payload

	bundledMost = 64  // longest payload that is bundled, bytes: longer ones gain little
	bundleSize  = 256 // of the longest EAGERS, bytes: 14 messages of 8 bytes
)

// bundle is the sends that wait for others to the same peer. It is empty whenever the lock is free.
type bundle struct {
	dst  int
	ops  []*Op  // new
	msg  []byte // the EAGERS that says the same
	most int    // its longest, bytes
	cost uint64 // of the messages, credit
}

// init prepares a bundle for a transport; none is made where a device matches tags.
func (b *bundle) init(caps *transport.Caps, tags transport.TagList) {
	if tags == nil {
		b.most = min(bundleSize, caps.MaxCtrl)
		b.msg = append(make([]byte, 0, bundleSize), ctrl{kind: ctrlEagers}.encode()...)
	}
}

// bundlesLocked tells whether a send of n bytes can wait in the bundle for others. What is there
// and cannot wait with it is sent.
func (e *Engine) bundlesLocked(dst int, n int) bool {
	b := &e.bundle
	if uint(dst) >= uint(len(e.peers)) || n > min(bundledMost, e.cfg.EagerLimit) || ctrlLen+eagersHead+n > b.most || e.broken != nil {
		return false
	}
	if len(b.ops) != 0 && (b.dst != dst || len(b.msg)+eagersHead+n > b.most) {
		e.unbundleLocked()
	}
	p := &e.peers[dst]
	return p.lost == nil && p.out.empty() && p.covers(b.cost+unexpected.EagerCost(n))
}

// add appends a send, for which bundlesLocked has found room.
func (b *bundle) add(op *Op) {
	b.dst = op.peer
	b.ops = append(b.ops, op)
	b.cost += unexpected.EagerCost(len(op.buf))
	b.msg = binary.LittleEndian.AppendUint64(b.msg, op.tag)
	b.msg = append(append(b.msg, byte(len(op.buf))), op.buf...)
}

// unbundleLocked sends what is in the bundle. One message alone is sent as ever, and so is each
// where the transport takes no EAGERS now.
func (e *Engine) unbundleLocked() {
	b := &e.bundle
	if len(b.ops) == 0 {
		return
	}
	p := &e.peers[b.dst]
	sent := len(b.ops) > 1 && e.tr.SendCtrl(b.dst, b.msg) == nil
	if sent {
		p.out.charged += b.cost
		e.m.EagerSent += uint64(len(b.ops))
	}
	for _, op := range b.ops {
		if sent {
			op.complete(e.sentStatus(op.tag, len(op.buf)), nil)
		} else {
			op.isend()
		}
	}
	b.ops, b.msg, b.cost = b.ops[:0], b.msg[:ctrlLen], 0
}

// takeEagers handles an EAGERS of p.
func (p *peer) takeEagers(body []byte) {
	e := p.e
	if e.off.tags != nil {
		p.lose(protocolError("rank %d sends several messages as one to a device that matches tags", p.rank))
		return
	}
	for len(body) != 0 && p.lost == nil {
		if len(body) < eagersHead {
			p.lose(protocolError("messages of rank %d in one: a head of %d bytes", p.rank, len(body)))
			return
		}
		tag, n := binary.LittleEndian.Uint64(body), int(body[8])
		body = body[eagersHead:]
		if n > min(len(body), bundledMost) {
			p.lose(protocolError("messages of rank %d in one: one of %d bytes, where %d are left", p.rank, n, len(body)))
			return
		}
		e.eagerLocked(p.rank, uint32(p.rank), tag, body[:n:n])
		e.inv.settle(e, p.rank)
		body = body[n:]
	}
}
