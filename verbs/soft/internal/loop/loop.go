// Package loop is the wire inside one process: seeded, deterministic, and able to fail on demand.
package loop

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/mem"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/wire"
)

// Options say how a Fabric behaves. The zero value delivers every packet at the receiver's
// next poll.
type Options struct {
	Seed       uint64        // of all random decisions; a test that polls from one goroutine replays exactly
	MaxDelay   int           // a link may keep still for up to so many polls of its receiver
	MaxBurst   int           // most packets that a link delivers in one poll; 0: all
	MaxRefuse  int           // a send may find no room for up to so many times in a row
	MaxPayload int           // bytes of one packet; default 8 KiB
	Queue      int           // packets that a link holds in each direction; default 64
	Step       time.Duration // virtual clock: so much passes at each poll of any device; 0: the real clock
	// Stepped receives packets only in softtest.Step, so that a test decides how far a device runs
	// ahead of its host.
	Stepped bool
	// Direct lets devices read each other's memory, as on shared memory. Only for tests that use
	// all devices from one goroutine.
	Direct bool
}

// Fabric connects the loop wires of one process's devices. Any goroutine may use it.
type Fabric struct {
	opts Options
	id   uint64
	now  atomic.Int64
	mu   struct {
		sync.Mutex
		opened  uint64
		devices map[wire.DeviceID]*Wire
		pairs   map[[2]wire.DeviceID]*pair
	}
}

var lastFabric atomic.Uint64

// NewFabric makes a fabric.
func NewFabric(opts Options) *Fabric {
	if opts.MaxPayload <= 0 {
		opts.MaxPayload = 8 << 10
	}
	if opts.Queue <= 0 {
		opts.Queue = 64
	}
	f := &Fabric{opts: opts, id: lastFabric.Add(1)}
	f.mu.devices = make(map[wire.DeviceID]*Wire)
	f.mu.pairs = make(map[[2]wire.DeviceID]*pair)
	return f
}

// Clock is the virtual clock, or nil.
func Clock(f *Fabric) func() int64 {
	if f.opts.Step == 0 {
		return nil
	}
	return f.now.Load
}

// Advance moves the virtual clock.
func Advance(f *Fabric, d time.Duration) { f.now.Add(int64(d)) }

var (
	errLinkCut    = errors.New("the link was cut")
	errDeviceDead = fmt.Errorf("the peer's device died: %w", verbs.ErrPeerEnded)
	errClosed     = fmt.Errorf("the peer's device was closed: %w", verbs.ErrPeerClosed)
)

// Break cuts the link between two devices; packets on their way are lost.
func Break(f *Fabric, a, b wire.DeviceID) {
	f.mu.Lock()
	p := f.mu.pairs[pairKey(a, b)]
	f.mu.Unlock()
	if p != nil {
		p.cut(errLinkCut)
	}
}

// Kill lets a device die as a process does: its peers lose their links; it must not be used
// afterwards except to destroy its objects.
func Kill(f *Fabric, d wire.DeviceID) {
	f.mu.Lock()
	delete(f.mu.devices, d)
	var pairs []*pair
	for k, p := range f.mu.pairs {
		if k[0] == d || k[1] == d {
			pairs = append(pairs, p)
		}
	}
	f.mu.Unlock()
	for _, p := range pairs {
		p.cut(errDeviceDead)
	}
}

func pairKey(a, b wire.DeviceID) [2]wire.DeviceID {
	for i := range a {
		if a[i] != b[i] {
			if a[i] > b[i] {
				a, b = b, a
			}
			break
		}
	}
	return [2]wire.DeviceID{a, b}
}

// pair is the connection of two devices: a queue in each direction.
type pair struct {
	ends [2]*link
}

// cut breaks both directions at once.
func (p *pair) cut(err error) {
	for _, e := range p.ends {
		e.in.kill(err)
		e.wire.signal()
	}
}

// Wire is a device's end of a fabric.
type Wire struct {
	f        *Fabric
	env      wire.Env
	regions  *mem.Table // of the device
	links    []*link    // owned by the device's owner
	rng      *rand.Rand
	armed    atomic.Bool
	hasNew   atomic.Bool
	Stepping bool // the device makes a step: see Options.Stepped
	mu       struct {
		sync.Mutex
		added []*link // by peers
	}
}

func New(f *Fabric, env wire.Env, regions *mem.Table) *Wire {
	w := &Wire{f: f, env: env, regions: regions}
	env.Self.Loop = f.id
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.opened++
	w.rng = rand.New(rand.NewPCG(f.opts.Seed, f.mu.opened))
	f.mu.devices[env.Self.ID] = w
	return w
}

func (w *Wire) Name() string { return wire.Loop }

// signal wakes the device's owner if it sleeps.
func (w *Wire) signal() {
	if w.armed.Load() {
		w.env.Notifier.Wake()
	}
}

func (w *Wire) Connect(a *wire.Address) (wire.Link, error) {
	if a.Loop != w.f.id {
		return nil, errors.New("the device is not on this fabric")
	}
	f := w.f
	f.mu.Lock()
	defer f.mu.Unlock()
	key := pairKey(w.env.Self.ID, a.ID)
	if p := f.mu.pairs[key]; p != nil && !p.ends[0].in.dead() {
		w.adopt()
		for _, e := range p.ends {
			if e.wire == w {
				return e, nil
			}
		}
	}
	peer := f.mu.devices[a.ID]
	if peer == nil {
		return nil, errors.New("the device is gone")
	}
	p := newPair(w, peer)
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

// ToSelf is the link from the device to itself.
func (w *Wire) ToSelf() (wire.Link, error) { return w.Connect(w.env.Self) }

func newPair(a, b *Wire) *pair {
	opts := &a.f.opts
	q1, q2 := newPacketQueue(opts.Queue), newPacketQueue(opts.Queue)
	p := &pair{}
	p.ends[0] = &link{wire: a, peer: b, out: q1, in: q2}
	p.ends[1] = &link{wire: b, peer: a, out: q2, in: q1}
	if a == b { // to ourselves: what goes out comes in
		p.ends[0].in = q1
		p.ends[1] = p.ends[0]
	}
	if opts.Direct {
		p.ends[0].mem = b.regions
		p.ends[1].mem = a.regions
	}
	return p
}

// adopt takes over links that peers have made.
func (w *Wire) adopt() {
	if !w.hasNew.Load() {
		return
	}
	w.hasNew.Store(false)
	w.mu.Lock()
	w.links = append(w.links, w.mu.added...)
	w.mu.added = nil
	w.mu.Unlock()
}

func (w *Wire) Poll(budget int) int {
	w.adopt()
	if w.f.opts.Step != 0 {
		w.f.now.Add(int64(w.f.opts.Step))
	}
	if w.f.opts.Stepped && !w.Stepping {
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
func (w *Wire) turn(full bool) {
	if !full {
		return
	}
	if len(w.links) > 1 {
		first := w.links[0]
		copy(w.links, w.links[1:])
		w.links[len(w.links)-1] = first
	}
}

func (w *Wire) Release() {
	for _, l := range w.links {
		if l.in.release() {
			l.peer.signal()
		}
	}
}

func (w *Wire) Flush() {}

func (w *Wire) Arm() { w.armed.Store(true) }

func (w *Wire) Disarm() { w.armed.Store(false) }

func (w *Wire) Pending() bool {
	return w.hasNew.Load() || slices.ContainsFunc(w.links, func(l *link) bool { return l.in.ready.Load() != 0 })
}

// Expects tells whether something has come that was not received. The end of a link is told once.
func (w *Wire) Expects() bool {
	return w.hasNew.Load() || slices.ContainsFunc(w.links, func(l *link) bool {
		return !l.downTold && !l.closed && l.in.ready.Load() != 0
	})
}

func (w *Wire) Unsignal() {}

func (w *Wire) Close() {
	w.adopt()
	w.f.mu.Lock()
	delete(w.f.mu.devices, w.env.Self.ID)
	w.f.mu.Unlock()
	for _, l := range w.links {
		l.Close()
	}
	w.links = nil
}
