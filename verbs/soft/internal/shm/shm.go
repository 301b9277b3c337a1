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

// The shm wire: a ring in shared memory for each direction of each pair of devices that talk, made
// at first use.
//
// What peers share. Each device has an inbox (ready bitmap and parked flag) and its region table,
// and for each peer a ring that it receives on; all are sealed memfds whose descriptors go through
// an abstract Unix socket, so that nothing has a name in a file system and nothing is left when a
// process is killed. A peer also gets an eventfd, which it writes when it has to wake a parked
// device. The socket stays open: its end tells that the peer is gone, as its pidfd does.
//
// How arrivals are found. Rings that delivered lately are hot: poll looks at each of them, and
// their writers signal nothing. All others are cold: their writers raise a bit in our inbox, of
// which poll tests one word. A device that is about to sleep makes all its rings cold and says in
// its inbox that it is parked (package shmring has the rules).
//
// Under the race detector: it does not follow mapped memory, so it neither sees races in it nor the
// order that rings establish. Data that two goroutines hand over by nothing but this wire is
// reported falsely. In tests one goroutine drives both devices, or they are two processes; the
// rings themselves are raced on heap memory in package shmring.

// maxHot is how many rings poll looks at one by one.
const maxHot = 8

// hotPatience is how many polls a hot ring may go without a packet before another one takes its
// place.
const hotPatience = 256

// eventSlot is the slot of our own inbox that background goroutines raise; links have the slots
// from 1.
const eventSlot = 0

// Wire is the shm wire of a device. Owned by the device's owner, except for slots and what never
// changes.
type Wire struct {
	env   wire.Env
	cfg   Config
	notif *notify.Epoll
	conn  *dial.Connector
	local *local

	links  map[wire.DeviceID]*link
	left   map[wire.DeviceID]error // why another wire carries what was to go to a peer; few
	bySlot [shmring.Slots]*link
	hot    []hotRing
	ready  []*link   // taken from the inbox, being served
	owing  []*link   // lent or took something since the last release
	dying  []*link   // peer is gone, packets may be left
	dead   []*link   // to be buried at the end of poll
	gone   []*remote // to be unmapped by the next poll: what was lent from them has been released then
	watch  *watch
	take   func(slot uint32)

	polls     uint64
	attention bool // the next poll goes the slow way
	armed     bool
	closed    bool

	h   wire.Header    // of the packet being received
	pkt shmring.Packet // the same, as the ring gives it

	slotMu sync.Mutex // upgrades allocate slots in the background
	slots  slotSet
}

// hotRing is a ring that poll looks at.
type hotRing struct {
	probe shmring.Probe
	l     *link
}

func Open(env wire.Env, cfg Config) (wire.Wire, error) {
	notif, ok := env.Notifier.(*notify.Epoll)
	if !ok {
		return nil, errors.New("the notifier takes no file descriptors")
	}
	if err := shmring.CheckBytes(cfg.RingBytes); err != nil {
		return nil, err
	}
	w := &Wire{env: env, cfg: cfg, notif: notif, links: map[wire.DeviceID]*link{}, left: map[wire.DeviceID]error{}}
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

// open makes what all links share and starts to listen.
func (w *Wire) open() (err error) {
	if err = probePidfd(); err != nil {
		return err
	}
	if w.local, err = newLocal(); err != nil {
		return err
	}
	if err = w.notif.Add(w.local.evfd, unix.EPOLLIN); err != nil {
		return err
	}
	w.local.added = true
	if w.watch, err = newWatch(w.notif); err != nil {
		return err
	}
	if err = w.cfg.Regions.Rehome(w.local.piece); err != nil {
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
		Self: w.env.Self, Secret: w.env.Secret, Kind: wire.SHM, Listener: ln, Log: w.env.Log,
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

// dialSocket dials a. A kernel that refuses this now will do so again. Every device listens before
// it gives out its address, and nothing listens at an abstract address after a device is gone: a
// refusal is final.
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

// Connect returns the link to the device at a.
func (w *Wire) Connect(a *wire.Address) (wire.Link, error) {
	switch {
	case a.SHM == "":
		return nil, errors.New("the peer has no shared memory")
	case a.Host != w.env.Self.Host:
		return nil, errors.New("the peer is on another host, in another container or of another user")
	case w.left[a.ID] != nil:
		return nil, w.left[a.ID]
	}
	l := w.links[a.ID]
	if l == nil || l.state == shmDead {
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

// Yield leaves a peer to another wire, because of why, and returns the link to it that never came
// up, if there is one. It does nothing and returns false while the peer is connected, or cannot be.
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

// Release ends the lending and tells writers what is free.
func (w *Wire) Release() {
	for _, l := range w.owing {
		l.owing, l.lent = false, false
		l.giveBack()
	}
	w.owing = w.owing[:0]
}

// Flush does nothing: send publishes at once.
func (w *Wire) Flush() {}

// Arm makes every arrival signal. Every store in it is a full barrier; the poll that follows is the
// last look.
func (w *Wire) Arm() {
	w.armed, w.attention = true, true
	for i := range w.hot {
		w.hot[i].l.peer.rx.SetHot(false)
	}
	w.local.drain()
	w.local.inbox.Park()
}

// Disarm takes arm back. The poll that follows looks at everything: we may have been woken for any
// reason.
func (w *Wire) Disarm() {
	w.armed, w.attention = false, true
	w.local.inbox.Unpark()
	for i := range w.hot {
		w.hot[i].l.peer.rx.SetHot(true)
	}
}

// Pending looks at what arm has made cold, and at what was raised before it.
func (w *Wire) Pending() bool {
	for i := range w.hot {
		if !w.hot[i].probe.Empty() {
			return true
		}
	}
	return w.local.inbox.Pending()
}

func (w *Wire) Unsignal() { w.local.drain() }

// Close ends all links and the background work, and gives back every descriptor and mapping.
func (w *Wire) Close() {
	if w.closed {
		return
	}
	w.closed = true
	for _, l := range w.links {
		l.Close()
	}
	if w.conn != nil {
		w.conn.Close()
	}
	w.bury(false)
	w.unmapGone()
	if w.watch != nil {
		w.watch.close()
	}
	if w.local != nil {
		if w.local.added {
			_ = w.notif.Del(w.local.evfd)
		}
		// Regions that outlive the wire go on on the heap.
		w.cfg.Regions.ToHeap()
		w.local.close()
	}
}
