//go:build linux

package shm

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/tagmatch/tagmatch/internal/shmring"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/dial"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/notify"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/wire"
)

// The wire has a ring in shared memory for each direction between two devices that communicate,
// made at first use.
//
// What peers share: each device has an inbox (a bitmap of rings with packets, and a word that says
// whether its owner polls) and its region table, and for each peer a ring that it receives from.
// All are sealed memfds, whose descriptors are passed over an abstract Unix socket: nothing has a
// name in a file system, and nothing is left when a process is killed. A peer also gets a pipe,
// to which it writes to wake the device. The socket stays open: it is closed by the peer's end, as
// its pidfd then shows too.
//
// How arrivals are found: rings that delivered lately are hot. Poll looks at each of them, and
// their writers do not signal. All others are cold: their writers raise a bit of this device's
// inbox, of which Poll tests one word. A device that is about to sleep makes all its rings cold and
// says so in its inbox (package shmring has the rules).
//
// Any peer can write nonsense to the inbox, or stop before it wakes the device, which it has taken
// on for all. So a device, also one that sleeps, looks at all of its rings now and then (sweep).
//
// The race detector does not follow mapped memory: it sees neither races in it nor the order that a
// ring establishes, and falsely reports data that two goroutines hand over by this wire alone. In
// tests one goroutine uses both devices, or they are two processes; package shmring has tests of
// rings in heap memory.

// maxHot is the most rings that are hot.
const maxHot = 8

// hotPatience is for how many polls a ring without packets stays hot when another could be.
const hotPatience = 256

// eventSlot is the slot of a device's inbox for its own background goroutines; links have the slots
// from 1.
const eventSlot = 0

// Wire is the shm wire of a device, used by the device's owner alone, except for slots.
type Wire struct {
	env   wire.Env
	cfg   Config
	notif *notify.Epoll
	conn  *dial.Connector
	local *local

	links  map[wire.DeviceID]*link // links that are not dead
	left   map[wire.DeviceID]error // why a peer was left to another wire
	rings  []*link                 // links that are up or dying
	bySlot [shmring.Slots]*link    // links that are up, by slot of the inbox
	hot    []hotRing               // polled one by one; at most maxHot
	ready  []*link                 // links that may have packets, in this poll
	dying  []*link                 // see shmDying
	dead   []*link                 // links that removeDead takes out of everything at the end of the poll
	gone   []*remote               // to be unmapped at the next poll
	watch  *watch
	alarm  alarm
	swept  int64             // when sweep last looked, by wire.Monotonic
	take   func(slot uint32) // adds a slot's link to ready
	long   *link             // whose ring the last long packet went to; nil once prepareRing was called

	polls     uint64 // calls of Poll
	attention bool   // the next Poll calls pollSlow
	armed     bool
	closed    bool

	h   wire.Header    // of the packet being received
	pkt shmring.Packet // the same packet, as the ring has it

	slotMu sync.Mutex // background goroutines prepare connections
	slots  slotSet    // slots in use
}

// hotRing is a ring that Poll looks at.
type hotRing struct {
	probe shmring.Probe // of the position behind the last packet received
	l     *link
}

// Open opens the wire. It fails where a kernel, or a container, does not have what it needs.
func Open(env wire.Env, cfg Config) (wire.Wire, error) {
	notif, ok := env.Notifier.(*notify.Epoll)
	if !ok {
		return nil, errors.New("the notifier takes no file descriptors")
	}
	if err := shmring.CheckBytes(cfg.RingBytes); err != nil {
		return nil, err
	}
	w := &Wire{env: env, cfg: cfg, notif: notif, links: map[wire.DeviceID]*link{}, left: map[wire.DeviceID]error{},
		alarm: alarm{after: sweepEvery}}
	w.take = func(slot uint32) {
		if l := w.bySlot[slot]; l != nil {
			w.ready = append(w.ready, l)
		}
	}
	if err := w.open(); err != nil {
		w.Close()
		return nil, err
	}
	return w, nil
}

// open makes what all links share, and starts to listen.
func (w *Wire) open() (err error) {
	if err = probePidfd(); err != nil {
		return err
	}
	if w.local, err = newLocal(); err != nil {
		return err
	}
	if err = w.notif.Add(w.local.pipe.r, unix.EPOLLIN); err != nil {
		return err
	}
	w.local.added = true
	if w.watch, err = newWatch(w.notif); err != nil {
		return err
	}
	if err = w.cfg.Regions.Rehome(w.local.piece, mayWait); err != nil {
		return err
	}
	var name [12]byte
	_, _ = rand.Read(name[:])
	socket := fmt.Sprintf("@tagmatch-%x", name)
	ln, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	w.env.Self.SHM, w.env.Self.Host = socket, hostID()
	cfg := dial.Config{
		Self: w.env.Self, Secret: w.env.Secret, Kind: wire.SHM, Listener: ln, From: from, Log: w.env.Log,
		Dial: dialSocket, Prepare: w.prepare, Upgrade: w.upgrade, Yields: w.env.Yields, Retry: w.env.PeerTimeout,
		Wake: func() {
			w.local.inbox.Keep(eventSlot)
			w.notif.Wake()
		},
	}
	if w.cfg.Faults != nil {
		w.cfg.Faults(&cfg)
	}
	w.conn = dial.New(cfg)
	return nil
}

// dialSocket dials a's socket. A device listens before it publishes its address, and its abstract
// address is free when it is gone: a refused connection is final. So is what the kernel forbids.
func dialSocket(ctx context.Context, a *wire.Address) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", a.SHM)
	if errors.Is(err, unix.ECONNREFUSED) {
		return nil, dial.Refuse(dial.RejectClosing, "its device was closed, or its process has ended")
	}
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
		return nil, dial.Refuse(dial.RejectYielded, "this process may not connect to its socket: %v", err)
	}
	return conn, err
}

func (w *Wire) Name() string { return wire.SHM }

// Reaches implements wire.Wire.
func (w *Wire) Reaches(a *wire.Address) error {
	switch {
	case a.SHM == "":
		return errors.New("the peer has no shared memory")
	case a.Host != w.env.Self.Host:
		return errors.New("the peer is on another host, in another container or of another user")
	}
	return w.left[a.ID]
}

// Connect returns the link to the device at a. It connects at the first Send.
func (w *Wire) Connect(a *wire.Address) (wire.Link, error) {
	if err := w.Reaches(a); err != nil {
		return nil, err
	}
	l := w.links[a.ID]
	if l == nil || l.state == shmDead {
		w.conn.Expect(a.ID)
		l = w.newLink(a)
	}
	return l, nil
}

func (w *Wire) newLink(a *wire.Address) *link {
	copied := *a
	l := &link{w: w, addr: &copied}
	w.links[a.ID] = l
	return l
}

// Yield implements wire.Yielder.
func (w *Wire) Yield(a *wire.Address, why error) (wire.Link, bool) {
	l := w.links[a.ID]
	switch {
	case a.SHM == "" || a.Host != w.env.Self.Host || w.left[a.ID] != nil:
		return nil, false
	case l != nil && l.peer != nil || !w.conn.Yield(a, why):
		return nil, false
	}
	w.left[a.ID] = why
	if l == nil {
		return nil, true
	}
	l.state = shmDead
	delete(w.links, a.ID)
	return l, true
}

// Arm makes every arrival signal, and wake the device, or, unless it is asleep, what is urgent
// wake it. Each store to shared memory in it is a full memory barrier, so that the Poll that
// follows sees what was sent without a signal.
func (w *Wire) Arm(asleep bool) {
	w.armed, w.attention = true, true
	for i := range w.hot {
		w.hot[i].l.peer.rx.SetHot(false)
	}
	w.local.pipe.drain()
	if asleep {
		w.local.inbox.Park()
	} else {
		w.local.inbox.Leave()
	}
	w.sweepLater()
}

// Disarm takes back Arm. The next Poll looks at everything, since any of it may have woken the
// owner.
func (w *Wire) Disarm() {
	w.armed, w.attention = false, true
	w.local.inbox.Unpark()
	for i := range w.hot {
		w.hot[i].l.peer.rx.SetHot(true)
	}
}

// Pending reports whether a ring that was hot before Arm, or one in the inbox, has packets.
func (w *Wire) Pending() bool {
	for i := range w.hot {
		if !w.hot[i].probe.Empty() {
			return true
		}
	}
	return w.local.inbox.Pending()
}

// Unsignal implements wire.Signaller.
func (w *Wire) Unsignal() { w.local.pipe.drain() }

// Close ends all links, those too that no poll has found, and background goroutines, and frees
// every descriptor and mapping.
func (w *Wire) Close() {
	if w.closed {
		return
	}
	w.closed = true
	if w.alarm.timer != nil {
		w.alarm.timer.Stop()
	}
	if w.conn != nil {
		w.results(w.conn.Close())
	}
	for _, l := range w.links {
		l.Close()
	}
	w.removeDead(false)
	w.unmapGone(true)
	if w.watch != nil {
		w.watch.close()
	}
	if w.local != nil {
		if w.local.added {
			_ = w.notif.Del(w.local.pipe.r)
		}
		// Regions may outlive the wire.
		w.cfg.Regions.ToHeap()
		w.local.close()
	}
}
