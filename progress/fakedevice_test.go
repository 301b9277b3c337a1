package progress

import (
	"fmt"
	"os"
	"runtime/debug"
	"slices"

	"github.com/tagmatch/tagmatch/transport"
)

// fakeDevice is a tag list after TMO 5.2. List operations, arrivals and data happen in polls,
// unless a test holds them; the completion queue is in order. It ends the tests where software does
// what it must not.
type fakeDevice struct {
	n      *fakeNode
	list   []*fakeEntry
	byID   map[uint64]*fakeEntry // until the last completion was polled
	h, s   uint16
	ops    []fakeListOp // posted, not executed
	cq     []packet
	data   []packet // matched, their data under way
	polled uint32   // unexpected messages that the engine has seen

	holdOps, holdData, holdCQ bool
	noAdd, noSync, loseSync   bool // ADDs and SYNCs are refused, or SYNCs have no effect
}

type fakeEntry struct {
	id        uint64
	tag, mask uint64
	buf       []byte
	live      bool
	present   bool // in list
	deleting  bool
}

type fakeOpKind uint8

const (
	fakeAdd fakeOpKind = iota
	fakeDel
	fakeForceDel
	fakeSync
)

type fakeListOp struct {
	kind  fakeOpKind
	en    *fakeEntry
	count uint16
}

func newFakeDevice(n *fakeNode) *fakeDevice {
	return &fakeDevice{n: n, byID: map[uint64]*fakeEntry{}, h: n.net.opts.count, s: n.net.opts.count}
}

func (d *fakeDevice) Capacity() int { return d.n.net.opts.tags }

func (d *fakeDevice) Covers(rank int) bool { return !d.n.net.opts.split || (rank^d.n.rank)&1 == 0 }

func (d *fakeDevice) Free() int {
	d.n.net.mu.Lock()
	defer d.n.net.mu.Unlock()
	if !d.opRoomLocked() {
		return 0
	}
	return d.n.net.opts.tags - len(d.byID)
}

func (d *fakeDevice) opRoomLocked() bool {
	return d.n.net.opts.maxOps == 0 || len(d.ops) < d.n.net.opts.maxOps
}

// postLocked queues an operation, in the order of the calls. What takes a receive out may find more
// than maxOps before it.
func (d *fakeDevice) postLocked(kind fakeOpKind, en *fakeEntry, handled uint32) {
	if handled > d.polled {
		d.fault("V8: a count of messages that were not even seen")
	}
	d.ops = append(d.ops, fakeListOp{kind, en, uint16(handled) + d.n.net.opts.count})
	d.n.eventLocked()
}

func (d *fakeDevice) Add(id uint64, tag, mask uint64, buf []byte, handled uint32) error {
	d.n.net.mu.Lock()
	defer d.n.net.mu.Unlock()
	switch {
	case tag&mask != tag:
		d.fault("V19")
	case d.byID[id] != nil:
		d.fault("V13")
	case d.noAdd || len(d.byID) >= d.n.net.opts.tags || !d.opRoomLocked():
		return transport.ErrAgain
	}
	en := &fakeEntry{id: id, tag: tag, mask: mask, buf: buf}
	d.postLocked(fakeAdd, en, handled)
	d.byID[id] = en
	return nil
}

func (d *fakeDevice) remove(kind fakeOpKind, id uint64, handled uint32) error {
	d.n.net.mu.Lock()
	defer d.n.net.mu.Unlock()
	en := d.byID[id]
	if en == nil || en.deleting {
		d.fault(fmt.Sprintf("DEL of receive %#x, which is not there or is being deleted", id))
	}
	d.postLocked(kind, en, handled)
	en.deleting = true
	return nil
}

func (d *fakeDevice) Del(id uint64, handled uint32) error { return d.remove(fakeDel, id, handled) }
func (d *fakeDevice) ForceDel(id uint64, handled uint32) error {
	return d.remove(fakeForceDel, id, handled)
}

func (d *fakeDevice) Sync(handled uint32) error {
	d.n.net.mu.Lock()
	defer d.n.net.mu.Unlock()
	if d.noSync || slices.ContainsFunc(d.ops, func(op fakeListOp) bool { return op.kind == fakeSync }) || !d.opRoomLocked() {
		return transport.ErrAgain
	}
	d.postLocked(fakeSync, nil, handled)
	return nil
}

// nextLocked lets the device work and picks what the engine sees next.
func (d *fakeDevice) nextLocked() (p packet, err error, ok bool) {
	for d.stepLocked() {
	}
	switch {
	case len(d.cq) == 0:
		return d.n.readLocked()
	case d.holdCQ:
		return p, nil, false
	}
	p, d.cq = d.cq[0], d.cq[1:]
	return p, p.failure, true
}

// stepLocked does one thing: a list operation before packets, and those before data.
func (d *fakeDevice) stepLocked() bool {
	if len(d.ops) != 0 && !d.holdOps {
		op := d.ops[0]
		d.ops = d.ops[1:]
		d.executeLocked(op)
		return true
	}
	if p, ok := d.n.takeLocked(); ok {
		d.matchLocked(p)
		return true
	}
	if len(d.data) != 0 && !d.holdData {
		p := d.data[0]
		d.data = d.data[1:]
		d.finishLocked(p)
		return true
	}
	return false
}

// executeLocked carries out a list operation: removal, then the count, then activation (V10).
func (d *fakeDevice) executeLocked(op fakeListOp) {
	switch en := op.en; op.kind {
	case fakeSync:
		if d.loseSync {
			return
		}
	case fakeAdd:
		en.present = true
		d.list = append(d.list, en)
	case fakeDel:
		d.takeLocked(en)
		d.cq = append(d.cq, packet{kind: pkDeleted, id: en.id, src: -1, app: boolBit(en.present)})
		en.present = false
	case fakeForceDel:
		if en.live || !d.takeLocked(en) {
			d.fault("V11: a forced DEL of an entry that is not dormant")
		}
		delete(d.byID, en.id)
	}
	d.s = op.count
	if d.s == d.h {
		for _, en := range d.list {
			en.live = true
		}
	}
}

// fault ends the tests: it is found inside of the engine, whose lock a panic would leave taken.
func (d *fakeDevice) fault(what string) {
	fmt.Fprintf(os.Stderr, "FAIL: rank %d: %s\n%s", d.n.rank, what, debug.Stack())
	os.Exit(2)
}

func boolBit(b bool) uint32 {
	if b {
		return 1
	}
	return 0
}

func (d *fakeDevice) takeLocked(en *fakeEntry) bool {
	i := slices.Index(d.list, en)
	if i < 0 {
		return false
	}
	d.list = slices.Delete(d.list, i, i+1)
	return true
}

func (d *fakeDevice) matchLocked(p packet) {
	if p.kind != pkEager && p.kind != pkRndv || !d.Covers(p.src) {
		d.cq = append(d.cq, p)
		return
	}
	for _, en := range d.list {
		if en.live && p.tag&en.mask == en.tag {
			d.takeLocked(en)
			en.present = false
			p.entry = en
			p.id = uint64(boolBit(p.kind == pkRndv && d.n.net.opts.software))
			d.cq = append(d.cq, p)
			d.data = append(d.data, p)
			return
		}
	}
	d.h++
	d.cq = append(d.cq, p)
}

// finishLocked moves the data of a matched message.
func (d *fakeDevice) finishLocked(p packet) {
	ev := packet{kind: pkDelivered, src: p.src, id: p.entry.id}
	switch {
	case p.kind == pkEager:
		copy(p.entry.buf, p.payload)
		ev.tag = uint64(len(p.payload))
	case p.id == 1, p.hdr.Len > uint64(len(p.entry.buf)):
		ev.kind, ev.hdr = pkIncomplete, p.hdr
		if p.id == 0 { // the device leaves TMH and RVH only
			ev.hdr.Extra = nil
		}
	default:
		read := packet{peer: p.src, app: p.hdr.RKey, tag: p.hdr.VA, dst: p.entry.buf[:p.hdr.Len]}
		ev.tag = p.hdr.Len
		if p.hdr.Len != 0 {
			ev.failure = d.n.doReadLocked(&read)
		}
		if ev.failure != nil {
			break
		}
		s := d.n.net.nodes[p.src]
		s.in[d.n.rank] = append(s.in[d.n.rank], packet{kind: pkFin, src: d.n.rank, app: p.app})
		s.eventLocked()
	}
	d.cq = append(d.cq, ev)
}

// deliver tells the engine of what concerns the list.
func (d *fakeDevice) deliver(p *packet, err error) {
	switch p.kind {
	case pkEager, pkRndv:
		app := p.app
		if p.id == 1 {
			app = uint32(p.src) // a software request is an eager message
		}
		d.n.sink.Matched(p.entry.id, p.src, app, p.tag)
	case pkDelivered:
		d.forget(p.id)
		d.n.sink.Delivered(p.id, p.tag, err)
	case pkIncomplete:
		d.forget(p.id)
		d.n.sink.Incomplete(p.id, &p.hdr)
	case pkDeleted:
		if p.app == 1 {
			d.forget(p.id)
		}
		d.n.sink.Deleted(p.id, p.app == 1)
	}
}

func (d *fakeDevice) forget(id uint64) {
	d.n.net.mu.Lock()
	defer d.n.net.mu.Unlock()
	if d.byID[id] == nil {
		d.fault("V12: an entry ends twice")
	}
	delete(d.byID, id)
}

// holdsOf reports whether something of rank is still inside the device.
func (d *fakeDevice) holdsOf(rank int) bool {
	for _, q := range [][]packet{d.cq, d.data} {
		for i := range q {
			if q[i].src == rank {
				return true
			}
		}
	}
	return false
}
