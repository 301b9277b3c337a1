package progress

import (
	"errors"
	"fmt"
	"sync"

	"github.com/tagmatch/tagmatch/transport"
)

// fakeNet is an in-memory transport between engines. A poll brings all that there is, by source.
type fakeNet struct {
	mu    sync.Mutex
	opts  fakeOpts
	nodes []*fakeNode

	// onDeliver sees each packet just before its receiver does.
	onDeliver func(dst int, p *packet)
}

type fakeOpts struct {
	room     int    // packets under way a pair; 0 without bound, below 0 none
	regions  int    // regions registered for a peer; 0 without bound
	maxEager int    // default 256
	maxRead  uint64 // default 1 << 30
	tags     int    // receives that each node's device matches; 0: no device
	maxOps   int    // list operations under way, with as many Add and Sync are refused; 0: enough
	software bool   // every rendezvous is a software request (TMO 6.7)
	count    uint16 // where the device's counters begin
	split    bool   // messages between an odd and an even rank come by another device than that with the list
	revoke   bool   // regions can be deregistered at any time
	lazy     bool   // ranks connect when the first message is posted; else all are connected at the start
}

type packetKind uint8

const (
	pkEager packetKind = iota
	pkRndv
	pkFin
	pkCtrl
	pkRead
	pkDelivered // from here on only a device's
	pkIncomplete
	pkDeleted
	pkHello // of connections, see fakelink_test.go
	pkEnd
)

type packet struct {
	kind    packetKind
	src     int
	app     uint32
	tag     uint64
	payload []byte
	hdr     transport.RndvHdr
	id      uint64 // of a read
	peer    int
	dst     []byte
	dropped bool       // a read from a rank that was dropped
	entry   *fakeEntry // that the device gave it to
	failure error      // of the device's read
}

type fakeNode struct {
	net       *fakeNet
	rank      int
	sink      transport.Sink
	calls     []func(transport.Sink) // that the next poll makes
	in        [][]packet             // by source
	reads     []packet
	regions   map[uint32]*fakeRegion
	nextKey   uint32
	links     []fakeLink // by peer
	asked     []int      // peers to connect to, in order
	cells     []uint64   // granted by peer
	dead      bool
	losses    []int // not reported yet
	armed     bool
	waiting   int
	notify    chan struct{}
	holdRds   bool  // reads stay where they are
	noRegion  error // what Register fails with
	copying   bool  // a sender is in the middle of a copy
	failRds   bool
	broken    error // of Poll
	closed    bool
	dev       *fakeDevice
	abandoned map[uint64]bool // ids of reads that write nothing
	chains    []int           // what SendEagers has returned, in order
}

type fakeRegion struct {
	node *fakeNode
	peer int // that it is for
	buf  []byte
	key  uint32
}

func (r *fakeRegion) Addr() uint64 { return uint64(r.key) << 32 }
func (r *fakeRegion) RKey() uint32 { return r.key }
func (r *fakeRegion) Dereg() error {
	r.node.net.mu.Lock()
	defer r.node.net.mu.Unlock()
	if r.node.regions[r.key] != r {
		return errors.New("deregistered twice")
	}
	delete(r.node.regions, r.key)
	return nil
}

func newFakeNet(n int, opts fakeOpts) *fakeNet {
	if opts.maxEager == 0 {
		opts.maxEager = 256
	}
	if opts.maxRead == 0 {
		opts.maxRead = 1 << 30
	}
	f := &fakeNet{opts: opts}
	for i := range n {
		node := &fakeNode{net: f, rank: i, in: make([][]packet, n), cells: make([]uint64, n), links: make([]fakeLink, n),
			regions: map[uint32]*fakeRegion{}, notify: make(chan struct{}, 1)}
		if opts.tags != 0 {
			node.dev = newFakeDevice(node)
		}
		f.nodes = append(f.nodes, node)
	}
	return f
}

// kill makes a rank disappear: the others hear of it when they poll.
func (f *fakeNet) kill(rank int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.nodes[rank].dead = true
	for i, n := range f.nodes {
		if i != rank && n.links[rank].begun {
			n.losses = append(n.losses, rank)
			n.eventLocked()
		}
	}
}

// fail has the transport of a rank fail.
func (n *fakeNode) fail(err error) {
	n.net.mu.Lock()
	defer n.net.mu.Unlock()
	n.broken = err
	n.eventLocked()
}

// hold keeps data of messages from being read, by the node or its device, or lets it go.
func (n *fakeNode) hold(on bool) {
	n.holdRds = on
	if n.dev != nil {
		n.dev.holdData = on
	}
}

func (n *fakeNode) eventLocked() {
	if n.armed {
		n.armed = false
		n.token()
	}
}

func (n *fakeNode) token() {
	select {
	case n.notify <- struct{}{}:
	default:
	}
}

func (n *fakeNode) Caps() transport.Caps {
	return transport.Caps{Name: "fake", Device: "none", MaxEager: n.net.opts.maxEager, MaxCtrl: 256, MaxRead: n.net.opts.maxRead, MaxHdr: 16,
		Revoke: n.net.opts.revoke}
}
func (n *fakeNode) Address() []byte { return []byte{byte(n.rank)} }
func (n *fakeNode) TagList() transport.TagList {
	if n.dev == nil {
		return nil
	}
	return n.dev
}

func (n *fakeNode) send(peer int, p packet) error {
	f := n.net
	f.mu.Lock()
	defer f.mu.Unlock()
	d := f.nodes[peer]
	if d.dead {
		return n.goneLocked(peer)
	}
	if !n.readyLocked(peer) {
		return transport.ErrAgain
	}
	if f.opts.room != 0 && len(d.in[n.rank]) >= f.opts.room {
		return transport.ErrAgain
	}
	p.src = n.rank
	d.in[n.rank] = append(d.in[n.rank], p)
	d.eventLocked()
	return nil
}

func (n *fakeNode) SendEager(peer int, app uint32, tag uint64, payload []byte) error {
	return n.send(peer, packet{kind: pkEager, app: app, tag: tag, payload: append([]byte(nil), payload...)})
}

func (n *fakeNode) SendEagers(peer int, app uint32, msgs []transport.Eager) (sent int) {
	for _, m := range msgs {
		if n.SendEager(peer, app, m.Tag, m.Payload) != nil {
			break
		}
		sent++
	}
	n.chains = append(n.chains, sent)
	return sent
}

func (n *fakeNode) SendRndv(peer int, h *transport.RndvHdr) error {
	p := packet{kind: pkRndv, app: h.AppCtx, tag: h.Tag, hdr: *h}
	p.hdr.Extra = append([]byte(nil), h.Extra...)
	return n.send(peer, p)
}

func (n *fakeNode) SendFin(peer int, app uint32) error {
	return n.send(peer, packet{kind: pkFin, app: app})
}

func (n *fakeNode) SendCtrl(peer int, msg []byte) error {
	return n.send(peer, packet{kind: pkCtrl, payload: append([]byte(nil), msg...)})
}

// registered is how many regions there are for a peer.
func (n *fakeNode) registered(peer int) (count int) {
	for _, r := range n.regions {
		if r.peer == peer {
			count++
		}
	}
	return count
}

func (n *fakeNode) Register(peer int, buf []byte) (transport.Region, error) {
	n.net.mu.Lock()
	defer n.net.mu.Unlock()
	if n.noRegion != nil {
		return nil, n.noRegion
	}
	if n.net.opts.regions != 0 && n.registered(peer) >= n.net.opts.regions {
		return nil, transport.ErrAgain
	}
	n.nextKey++
	r := &fakeRegion{n, peer, buf, n.nextKey}
	n.regions[r.key] = r
	return r, nil
}

func (n *fakeNode) Read(peer int, dst []byte, va uint64, rkey uint32, id uint64) error {
	f := n.net
	f.mu.Lock()
	defer f.mu.Unlock()
	if n.closed {
		return errors.New("this rank is closed")
	}
	if f.nodes[peer].dead {
		return n.goneLocked(peer)
	}
	if !n.readyLocked(peer) {
		return transport.ErrAgain
	}
	if f.opts.room != 0 && len(n.reads) >= f.opts.room {
		return transport.ErrAgain
	}
	delete(n.abandoned, id)
	n.reads = append(n.reads, packet{kind: pkRead, peer: peer, dst: dst, id: id, app: rkey, tag: va})
	n.eventLocked()
	return nil
}

func (n *fakeNode) Abandon(_ int, id uint64) bool {
	n.net.mu.Lock()
	defer n.net.mu.Unlock()
	if n.copying {
		return false
	}
	if n.abandoned == nil {
		n.abandoned = map[uint64]bool{}
	}
	n.abandoned[id] = true
	return true
}

// doReadLocked carries out one read.
func (n *fakeNode) doReadLocked(p *packet) error {
	s := n.net.nodes[p.peer]
	r := s.regions[p.app]
	off := p.tag - uint64(p.app)<<32
	if r == nil && !s.dead && n.net.opts.revoke {
		return transport.ErrDeregistered
	}
	if s.dead || p.dropped || n.failRds || r == nil || off+uint64(len(p.dst)) > uint64(len(r.buf)) {
		return errors.New("remote access error")
	}
	copy(p.dst, r.buf[off:])
	return nil
}

func (n *fakeNode) Grant(peer int, total uint64) error {
	n.net.mu.Lock()
	defer n.net.mu.Unlock()
	n.readyLocked(peer)
	n.net.nodes[peer].cells[n.rank] = total
	return nil
}

func (n *fakeNode) Granted(peer int) uint64 {
	n.net.mu.Lock()
	defer n.net.mu.Unlock()
	return n.cells[peer]
}

func (n *fakeNode) Wire(peer int) string {
	if peer == n.rank {
		return "self"
	}
	return "fake"
}

func (n *fakeNode) Poll() (int, error) {
	f := n.net
	if n.dev != nil {
		defer func() {
			if r := recover(); r != nil {
				n.dev.fault(fmt.Sprint(r))
			}
		}()
	}
	f.mu.Lock()
	if n.broken != nil {
		defer f.mu.Unlock()
		return 0, n.broken
	}
	events := 0
	for ; len(n.calls) != 0; n.calls = n.calls[1:] {
		f.mu.Unlock()
		n.calls[0](n.sink)
		f.mu.Lock()
		events++
	}
	events += n.helloLocked()
	next := n.nextLocked
	if n.dev != nil {
		next = n.dev.nextLocked
	}
	for p, err, ok := next(); ok; p, err, ok = next() {
		f.mu.Unlock()
		if p.kind < pkRead && f.onDeliver != nil {
			f.onDeliver(n.rank, &p)
		}
		n.deliver(&p, err)
		events++
		f.mu.Lock()
	}
	for len(n.losses) != 0 && len(n.reads) == 0 && !n.inputOf(n.losses[0]) {
		lost := n.losses[0]
		n.losses = n.losses[1:]
		f.mu.Unlock()
		n.sink.PeerLost(lost, errors.New("killed"))
		events++
		f.mu.Lock()
	}
	f.mu.Unlock()
	return events, nil
}

func (n *fakeNode) inputOf(rank int) bool {
	return len(n.in[rank]) != 0 || n.dev != nil && n.dev.holdsOf(rank)
}

// nextLocked picks what happens next.
func (n *fakeNode) nextLocked() (p packet, err error, ok bool) {
	if p, ok := n.takeLocked(); ok {
		return p, nil, true
	}
	return n.readLocked()
}

// takeLocked takes the next packet off the wire.
func (n *fakeNode) takeLocked() (p packet, ok bool) {
	for src, q := range n.in {
		if len(q) != 0 {
			n.in[src] = q[1:]
			if n.net.opts.room != 0 {
				n.net.nodes[src].eventLocked()
			}
			return q[0], true
		}
	}
	return p, false
}

// readLocked ends the oldest read.
func (n *fakeNode) readLocked() (p packet, err error, ok bool) {
	if len(n.reads) == 0 || n.holdRds && len(n.losses) == 0 {
		return p, nil, false
	}
	p, n.reads = n.reads[0], n.reads[1:]
	if n.abandoned[p.id] {
		p.dst = nil
	}
	return p, n.doReadLocked(&p), true
}

func (n *fakeNode) deliver(p *packet, err error) {
	if p.entry != nil {
		n.dev.deliver(p, err)
		return
	}
	if n.dev != nil && (p.kind == pkEager || p.kind == pkRndv) && n.dev.Covers(p.src) {
		n.dev.polled++
	}
	switch p.kind {
	case pkEager:
		n.sink.Eager(p.src, p.app, p.tag, p.payload)
	case pkRndv:
		n.sink.Rndv(p.src, &p.hdr)
	case pkFin:
		n.sink.Fin(p.src, p.app)
	case pkCtrl:
		n.sink.Ctrl(p.src, p.payload)
	case pkRead:
		n.sink.ReadDone(p.id, err)
	case pkHello:
		n.welcome(p)
	case pkEnd:
		n.sink.PeerLost(p.src, errors.New(string(p.payload)))
	default:
		n.dev.deliver(p, err)
	}
	for i := range p.payload {
		p.payload[i] = 0xEE // it was lent
	}
}

func (n *fakeNode) Drained() bool { return true }
func (n *fakeNode) Enough()       {}

func (n *fakeNode) Arm() error {
	n.net.mu.Lock()
	n.armed = true
	n.net.mu.Unlock()
	return nil
}

func (n *fakeNode) Disarm() {
	n.net.mu.Lock()
	n.armed = false
	n.net.mu.Unlock()
}

func (n *fakeNode) Wait() error {
	n.net.mu.Lock()
	n.waiting++
	if n.waiting > 1 {
		panic("two goroutines in Wait")
	}
	n.net.mu.Unlock()
	<-n.notify
	n.net.mu.Lock()
	n.waiting--
	n.net.mu.Unlock()
	return nil
}

func (n *fakeNode) Wake() { n.token() }
func (n *fakeNode) Close() error {
	n.net.mu.Lock()
	defer n.net.mu.Unlock()
	n.closed = true
	return nil
}
