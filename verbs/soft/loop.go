package soft

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tagmatch/tagmatch/verbs"
)

// FabricOptions say how a Fabric behaves. The zero value delivers every packet at the receiver's
// next poll.
type FabricOptions struct {
	Seed       uint64        // of all random decisions; a test that polls from one goroutine replays exactly
	MaxDelay   int           // a link may keep still for up to so many polls of its receiver
	MaxBurst   int           // most packets that a link delivers in one poll; 0: all
	MaxRefuse  int           // a send may find no room for up to so many times in a row
	MaxPayload int           // bytes of one packet; default 8 KiB
	Queue      int           // packets that a link holds in each direction; default 64
	Step       time.Duration // virtual clock: so much passes at each poll of any device; 0: the real clock
	// Stepped receives packets only in Device.Step, so that a test decides how far a device runs
	// ahead of its host.
	Stepped bool
	// Direct lets devices read each other's memory, as on shared memory. Only for tests that use
	// all devices from one goroutine.
	Direct bool
}

// Fabric connects the loop wires of one process's devices. Its methods may be called from any
// goroutine.
type Fabric struct {
	opts FabricOptions
	id   uint64
	now  atomic.Int64
	mu   struct {
		sync.Mutex
		opened  uint64
		devices map[deviceID]*loopWire
		pairs   map[[2]deviceID]*loopPair
	}
}

var lastFabric atomic.Uint64

// NewFabric makes a fabric.
func NewFabric(opts FabricOptions) *Fabric {
	if opts.MaxPayload <= 0 {
		opts.MaxPayload = 8 << 10
	}
	if opts.Queue <= 0 {
		opts.Queue = 64
	}
	f := &Fabric{opts: opts, id: lastFabric.Add(1)}
	f.mu.devices = make(map[deviceID]*loopWire)
	f.mu.pairs = make(map[[2]deviceID]*loopPair)
	return f
}

// clock is the virtual clock, or nil.
func (f *Fabric) clock() func() int64 {
	if f.opts.Step == 0 {
		return nil
	}
	return f.now.Load
}

// Advance moves the virtual clock.
func (f *Fabric) Advance(d time.Duration) { f.now.Add(int64(d)) }

var (
	errLinkCut    = errors.New("the link was cut")
	errDeviceDead = fmt.Errorf("the peer's device died: %w", verbs.ErrPeerEnded)
	errLoopClosed = fmt.Errorf("the peer's device was closed: %w", verbs.ErrPeerClosed)
)

// Break cuts the link between two devices; packets on their way are lost.
func (f *Fabric) Break(a, b *Device) {
	f.mu.Lock()
	p := f.mu.pairs[pairKey(a.self.id, b.self.id)]
	f.mu.Unlock()
	if p != nil {
		p.cut(errLinkCut)
	}
}

// Kill lets a device die as a process does: its peers lose their links; it must not be used
// afterwards except to destroy its objects.
func (f *Fabric) Kill(d *Device) {
	f.mu.Lock()
	delete(f.mu.devices, d.self.id)
	var pairs []*loopPair
	for k, p := range f.mu.pairs {
		if k[0] == d.self.id || k[1] == d.self.id {
			pairs = append(pairs, p)
		}
	}
	f.mu.Unlock()
	for _, p := range pairs {
		p.cut(errDeviceDead)
	}
}

func pairKey(a, b deviceID) [2]deviceID {
	for i := range a {
		if a[i] != b[i] {
			if a[i] > b[i] {
				a, b = b, a
			}
			break
		}
	}
	return [2]deviceID{a, b}
}

// loopPair is the connection of two devices: a queue in each direction.
type loopPair struct {
	ends [2]*loopLink
}

// cut breaks both directions at once.
func (p *loopPair) cut(err error) {
	for _, e := range p.ends {
		e.in.kill(err)
		e.wire.signal()
	}
}

// loopWire is a device's end of a fabric.
type loopWire struct {
	f       *Fabric
	env     wireEnv
	links   []*loopLink // owned by the device's owner
	rng     *rand.Rand
	armed   atomic.Bool
	hasNew  atomic.Bool
	stepped bool // in Device.Step
	mu      struct {
		sync.Mutex
		added []*loopLink // by peers
	}
}

func newLoopWire(f *Fabric, env wireEnv) *loopWire {
	w := &loopWire{f: f, env: env}
	env.self.loop = f.id
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.opened++
	w.rng = rand.New(rand.NewPCG(f.opts.Seed, f.mu.opened))
	f.mu.devices[env.self.id] = w
	return w
}

func (w *loopWire) name() string { return WireLoop }

// signal wakes the device's owner if it sleeps.
func (w *loopWire) signal() {
	if w.armed.Load() {
		w.env.notif.wake()
	}
}

func (w *loopWire) connect(a *address) (link, error) {
	if a.loop != w.f.id {
		return nil, errors.New("the device is not on this fabric")
	}
	f := w.f
	f.mu.Lock()
	defer f.mu.Unlock()
	key := pairKey(w.env.self.id, a.id)
	if p := f.mu.pairs[key]; p != nil && !p.ends[0].in.dead() {
		w.adopt()
		for _, e := range p.ends {
			if e.wire == w {
				return e, nil
			}
		}
	}
	peer := f.mu.devices[a.id]
	if peer == nil {
		return nil, errors.New("the device is gone")
	}
	p := newLoopPair(w, peer)
	f.mu.pairs[key] = p
	w.links = append(w.links, p.ends[0])
	if peer != w {
		peer.mu.Lock()
		peer.mu.added = append(peer.mu.added, p.ends[1])
		peer.mu.Unlock()
		peer.hasNew.Store(true)
	}
	return p.ends[0], nil
}

func newLoopPair(a, b *loopWire) *loopPair {
	opts := &a.f.opts
	q1, q2 := newPacketQueue(opts.Queue), newPacketQueue(opts.Queue)
	p := &loopPair{}
	p.ends[0] = &loopLink{wire: a, peer: b, out: q1, in: q2}
	p.ends[1] = &loopLink{wire: b, peer: a, out: q2, in: q1}
	if a == b { // to ourselves: what goes out comes in
		p.ends[0].in = q1
		p.ends[1] = p.ends[0]
	}
	if opts.Direct {
		p.ends[0].mem = &loopMemory{table: b.env.regions}
		p.ends[1].mem = &loopMemory{table: a.env.regions}
	}
	return p
}

// adopt takes over links that peers have made.
func (w *loopWire) adopt() {
	if !w.hasNew.Load() {
		return
	}
	w.hasNew.Store(false)
	w.mu.Lock()
	w.links = append(w.links, w.mu.added...)
	w.mu.added = nil
	w.mu.Unlock()
}

func (w *loopWire) poll(budget int) int {
	w.adopt()
	if w.f.opts.Step != 0 {
		w.f.now.Add(int64(w.f.opts.Step))
	}
	if w.f.opts.Stepped && !w.stepped {
		return 0
	}
	n := 0
	for i := 0; i < len(w.links); i++ {
		l := w.links[i]
		if l.in.ready.Load() != 0 {
			n += l.deliver(budget - n)
		}
		if n >= budget {
			break
		}
	}
	w.turn(n >= budget)
	return n
}

// turn drops links that are over and, after a full poll, lets another link be first.
func (w *loopWire) turn(full bool) {
	if !full {
		return
	}
	if len(w.links) > 1 {
		first := w.links[0]
		copy(w.links, w.links[1:])
		w.links[len(w.links)-1] = first
	}
}

func (w *loopWire) release() {
	for _, l := range w.links {
		if l.in.release() {
			l.peer.signal()
		}
	}
}

func (w *loopWire) flush() {}

func (w *loopWire) arm() { w.armed.Store(true) }

func (w *loopWire) disarm() { w.armed.Store(false) }

func (w *loopWire) pending() bool {
	return w.hasNew.Load() || slices.ContainsFunc(w.links, func(l *loopLink) bool { return l.in.ready.Load() != 0 })
}

func (w *loopWire) unsignal() {}

func (w *loopWire) close() {
	w.adopt()
	w.f.mu.Lock()
	delete(w.f.mu.devices, w.env.self.id)
	w.f.mu.Unlock()
	for _, l := range w.links {
		l.close()
	}
	w.links = nil
}
