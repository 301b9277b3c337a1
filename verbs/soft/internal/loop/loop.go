// Package loop is the wire between devices of one process. It is deterministic for a seed, and can
// delay, refuse and cut what it carries.
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

// Options are those of a Fabric. The zero value delivers every packet at the receiver's next poll.
type Options struct {
	Seed       uint64 // of all random decisions; one goroutine that polls all devices can be replayed
	MaxDelay   int    // after a delivery a link is silent for 0 to so many polls of its receiver
	MaxBurst   int    // most packets that a link delivers in one poll; 0: no limit
	MaxRefuse  int    // most Sends in a row that are refused although there is room
	MaxPayload int    // bytes of one packet; default 8 KiB
	Queue      int    // packets that a link holds in each direction; default 64
	// Step is how far each poll of any device advances the virtual clock; 0: the real clock.
	Step time.Duration
	// Stepped devices receive packets only in softtest.Step, so that a test decides how far a
	// device runs ahead of its program.
	Stepped bool
	// Direct lets devices read each other's memory as the shm wire does. One goroutine must then
	// use all devices.
	Direct bool
}

// Fabric connects the loop wires of one process's devices. Any goroutine may use it.
type Fabric struct {
	opts Options
	id   uint64
	now  atomic.Int64
	calm atomic.Bool // see Calm
	mu   struct {
		sync.Mutex
		opened  uint64
		devices map[wire.DeviceID]*Wire
		pairs   map[[2]wire.DeviceID]*pair
	}
}

var lastFabric atomic.Uint64

// NewFabric makes a fabric without devices.
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

// Clock returns the fabric's virtual clock in nanoseconds, or nil if it has none.
func Clock(f *Fabric) func() int64 {
	if f.opts.Step == 0 {
		return nil
	}
	return f.now.Load
}

// Calm has a fabric deliver everything at the receiver's next poll for a while, Options.Stepped or
// not, without a random decision.
func Calm(f *Fabric, calm bool) { f.calm.Store(calm) }

var smooth Options

// rough is the options that say what is delayed and refused.
func (f *Fabric) rough() *Options {
	if f.calm.Load() {
		return &smooth
	}
	return &f.opts
}

// Advance moves the virtual clock.
func Advance(f *Fabric, d time.Duration) { f.now.Add(int64(d)) }

var (
	errLinkCut    = errors.New("the link was cut")
	errDeviceDead = fmt.Errorf("the peer's device died: %w", verbs.ErrPeerEnded)
	errClosed     = fmt.Errorf("the peer's device was closed: %w", verbs.ErrPeerClosed)
)

// Break cuts the link between two devices, and reports whether there was one. Packets on their way
// are lost.
func Break(f *Fabric, a, b wire.DeviceID) bool {
	f.mu.Lock()
	p := f.mu.pairs[pairKey(a, b)]
	f.mu.Unlock()
	if p == nil || p.ends[0].in.ended() {
		return false
	}
	p.cut(errLinkCut)
	return true
}

// Kill breaks all links of a device, as the end of its process would. After that the device can
// only destroy its objects.
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

// pair is the connection of two devices, each of which has one end.
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
	regions  *mem.Table  // of the device
	links    []*link     // the device's owner's; the first is polled first
	rng      *rand.Rand  // the device's owner's
	armed    atomic.Bool // arrivals wake the notifier
	hasNew   atomic.Bool // mu.added is not empty
	Stepping bool        // receive although the fabric is Stepped; the device's owner's

	BeforeSend func() // is called by each Send, if not nil; the device's owner's

	mu struct {
		sync.Mutex
		added []*link // made by peers, not in links yet
	}
}

// New makes a device's wire.
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

func (w *Wire) Reaches(a *wire.Address) error {
	if a.Loop != w.f.id {
		return errors.New("the device is not on this fabric")
	}
	w.f.mu.Lock()
	defer w.f.mu.Unlock()
	if w.f.mu.devices[a.ID] == nil {
		return errors.New("the device is gone")
	}
	return nil
}

func (w *Wire) Connect(a *wire.Address) (wire.Link, error) {
	if err := w.Reaches(a); err != nil {
		return nil, err
	}
	f := w.f
	f.mu.Lock()
	defer f.mu.Unlock()
	key := pairKey(w.env.Self.ID, a.ID)
	if p := f.mu.pairs[key]; p != nil && !p.ends[0].in.ended() {
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
	if a == b { // the device itself: one end, whose queues are the same
		p.ends[0].in = q1
		p.ends[1] = p.ends[0]
	}
	if opts.Direct {
		p.ends[0].mem = b.regions
		p.ends[1].mem = a.regions
	}
	return p
}

// adopt adds the links that peers have made.
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
	if w.f.opts.Stepped && !w.Stepping && !w.f.calm.Load() {
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
	if n >= budget {
		wire.Rotate(w.links)
	}
	return n
}

func (w *Wire) Arm(bool) { w.armed.Store(true) }

func (w *Wire) Disarm() { w.armed.Store(false) }

func (w *Wire) Pending() bool {
	return w.hasNew.Load() || slices.ContainsFunc(w.links, func(l *link) bool { return l.in.ready.Load() != 0 })
}

// Expects reports whether packets, or the end of a link, have arrived and were not received yet.
func (w *Wire) Expects() bool {
	return w.hasNew.Load() || slices.ContainsFunc(w.links, func(l *link) bool {
		return !l.downTold && !l.closed && l.in.ready.Load() != 0
	})
}

func (w *Wire) Unsignal() {}

func (w *Wire) Close() {
	w.f.mu.Lock()
	delete(w.f.mu.devices, w.env.Self.ID)
	w.f.mu.Unlock()
	w.adopt() // nobody connects to it any more
	for _, l := range w.links {
		l.Close()
	}
	w.links = nil
}
