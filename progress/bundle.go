package progress

import (
	"encoding/binary"

	"github.com/tagmatch/tagmatch/progress/internal/unexpected"
	"github.com/tagmatch/tagmatch/transport"
)

// Short eager messages to one peer that are posted with one hold of the lock (Poster) go as one
// message, EAGERS: what transport and device do for a message they do once for all of them. Each
// keeps its tag, its cost, and its place in the order.
//
// A device that matches tags does not see what is in an EAGERS. So none is sent to a rank with one;
// or, with Config.Bundles, the device gets only receives that are posted when all ranks which the
// message may come from have answered an UNBUNDLE: they send none from there on. The first receive
// that the device could get sends it.
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

	// unbundleMost is how many ranks one receive may have to ask: it is not to connect a large job.
	unbundleMost = 64
)

// bundle is the sends that wait for others to the same peer. It is empty whenever the lock is free.
type bundle struct {
	to    *peer     // of all of them
	sends []bundled // in their order
	msg   []byte    // the EAGERS that says the same
	most  int       // its longest, bytes
	short int       // the longest payload that is bundled, bytes
	cost  uint64    // of the messages, credit
}

// bundled is one of them. They have no operations: if they go as one they have ended then.
type bundled struct {
	out  *Request // of the caller of Poster.Isend
	mark uint32
	tag  uint64
	buf  []byte
}

// init prepares a bundle for a transport.
func (b *bundle) init(caps *transport.Caps, limit int) {
	b.most, b.short = min(bundleSize, caps.MaxCtrl), min(bundledMost, limit)
	b.msg = append(make([]byte, 0, bundleSize), ctrl{kind: ctrlEagers}.encode()...)
	b.sends = make([]bundled, 0, bundleSize/eagersHead)
}

// bundleLocked adds a send to the bundle, if it can wait there for others. What is there and cannot
// wait with it is sent.
func (e *Engine) bundleLocked(dst int, tag uint64, buf []byte, mark uint32, out *Request) bool {
	b, n := &e.bundle, len(buf)
	if n > b.short {
		return false
	}
	if len(b.sends) != 0 && (b.to.rank != dst || len(b.msg)+eagersHead+n > b.most) {
		e.unbundleLocked()
	}
	if len(b.sends) == 0 && !e.beginBundleLocked(dst, n) {
		return false
	}
	cost := b.cost + unexpected.EagerCost(n)
	if !b.to.covers(cost) {
		return false
	}
	b.cost = cost
	// Field by field: a literal is made on the stack, and copied by loads wider than its stores.
	b.sends = b.sends[:len(b.sends)+1]
	s := &b.sends[len(b.sends)-1]
	s.out, s.mark, s.tag, s.buf = out, mark, tag, buf
	k := len(b.msg)
	b.msg = b.msg[:k+eagersHead+n]
	binary.LittleEndian.PutUint64(b.msg[k:], tag)
	b.msg[k+8] = byte(n)
	copy(b.msg[k+eagersHead:], buf)
	return true
}

// beginBundleLocked makes the bundle, which is empty, one to dst, and reports whether a message of
// n bytes may be its first. What it checks stays so as long as the lock is held.
func (e *Engine) beginBundleLocked(dst, n int) bool {
	b := &e.bundle
	if uint(dst) >= uint(len(e.peers)) || ctrlLen+eagersHead+n > b.most || e.broken != nil {
		return false
	}
	b.to = &e.peers[dst]
	return b.to.lost == nil && b.to.out.empty() && !b.to.out.single
}

// unbundleLocked sends what is in the bundle. One message alone is sent as ever, and so is each
// where the transport takes no EAGERS now.
func (e *Engine) unbundleLocked() {
	b := &e.bundle
	if len(b.sends) == 0 {
		return
	}
	p := b.to
	sent := len(b.sends) > 1 && e.tr.SendCtrl(p.rank, b.msg) == nil
	if sent {
		p.out.charged += b.cost
		e.m.EagerSent += uint64(len(b.sends))
	}
	for i := range b.sends {
		s := &b.sends[i]
		if sent {
			*s.out = e.sentLocked(p.rank, s.tag, s.buf).request().Mark(s.mark)
		} else {
			*s.out = e.isendLocked(p.rank, s.tag, s.buf).Mark(s.mark)
		}
	}
	clear(b.sends)
	b.sends, b.msg, b.cost = b.sends[:0], b.msg[:ctrlLen], 0
}

// takeEagers handles an EAGERS of p.
func (p *peer) takeEagers(body []byte) {
	e := p.e
	if p.bundles == bundlesNot && e.off.tags != nil && !p.foreign {
		p.lose(protocolError("rank %d sends several messages as one to a device that matches tags", p.rank))
		return
	}
	p.consumed(p.arriveAll(body))
}

// arriveAll is arrive for each message of an EAGERS.
func (p *peer) arriveAll(body []byte) (consumed uint64) {
	e := p.e
	for len(body) != 0 && p.lost == nil {
		if len(body) < eagersHead {
			p.lose(protocolError("messages of rank %d in one: a head of %d bytes", p.rank, len(body)))
			break
		}
		tag, n := binary.LittleEndian.Uint64(body), int(body[8])
		body = body[eagersHead:]
		if n > min(len(body), bundledMost) {
			p.lose(protocolError("messages of rank %d in one: one of %d bytes, where %d are left", p.rank, n, len(body)))
			break
		}
		if e.off.entries != 0 && p.steals(tag) {
			break
		}
		consumed += p.arrive(tag, body[:n:n])
		body = body[n:]
	}
	return consumed
}

// bundling is what a receiver knows of the EAGERS of a peer.
type bundling uint8

const (
	bundlesNot   bundling = iota // it sends none that would matter
	bundlesMaybe                 // it sends some until it is asked not to
	bundlesAsked                 // it was sent an UNBUNDLE
)

// single tells whether all ranks that a receive's message may come from send no EAGERS.
func (op *Op) single() bool {
	e := op.e
	switch {
	case e.off.bundlers == 0:
		return true
	case op.peer >= 0:
		return e.peers[op.peer].bundles == bundlesNot
	case op.peer == AnySource:
		return false
	}
	g := e.groupLocked(op.peer)
	for ; g.single < len(e.peers); g.single++ {
		if e.peers[g.single].mayBundle() && g.members.Contains(g.single) {
			return false
		}
	}
	return true
}

// unbundle asks all ranks that a receive's message may come from to send EAGERS no more, unless
// they are too many.
func (op *Op) unbundle() {
	e := op.e
	switch {
	case op.peer >= 0:
		e.peers[op.peer].unbundle()
		return
	case op.peer == AnySource && e.off.bundlers > unbundleMost:
		return
	}
	var ranks [unbundleMost]int
	n := 0
	for i := range e.peers {
		switch {
		case !e.peers[i].mayBundle() || !op.accepts(i):
		case n == len(ranks):
			return
		default:
			ranks[n] = i
			n++
		}
	}
	for _, i := range ranks[:n] {
		e.peers[i].unbundle()
	}
}

// unbundle asks p, once.
func (p *peer) unbundle() {
	if p.bundles == bundlesMaybe {
		p.bundles = bundlesAsked
		p.sendCtrl(ctrl{kind: ctrlUnbundle})
	}
}

// mayBundle tells whether p may send an EAGERS by the device with the tag list.
func (p *peer) mayBundle() bool { return p.bundles != bundlesNot && p.lost == nil }

// takeUnbundle handles an UNBUNDLE of p.
func (p *peer) takeUnbundle() {
	if p.out.single {
		p.lose(protocolError("rank %d asks twice not to be sent several messages as one", p.rank))
		return
	}
	p.out.single = true
	p.sendCtrl(ctrl{kind: ctrlUnbundled})
}

// takeUnbundled handles p's answer.
func (p *peer) takeUnbundled() {
	if p.bundles != bundlesAsked {
		p.lose(protocolError("rank %d answers what it was not asked, to send each message by itself", p.rank))
		return
	}
	p.bundles = bundlesNot
	p.e.off.bundlers--
}
