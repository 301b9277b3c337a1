//go:build linux

package soft

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/tagmatch/tagmatch/internal/shmring"
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

// shmWire is the shm wire of a device. Owned by the device's owner, except for slots and what never
// changes.
type shmWire struct {
	env   wireEnv
	notif *epollNotifier
	conns *connector
	local *shmLocal

	links  map[deviceID]*shmLink
	left   map[deviceID]error // why another wire carries what was to go to a peer; few
	bySlot [shmring.Slots]*shmLink
	hot    []hotRing
	ready  []*shmLink // taken from the inbox, being served
	owing  []*shmLink // lent or took something since the last release
	dying  []*shmLink // peer is gone, packets may be left
	dead   []*shmLink // to be buried at the end of poll
	gone   []*shmPeer // to be unmapped by the next poll: what was lent from them has been released then
	watch  *shmWatch
	take   func(slot uint32)

	polls     uint64
	attention bool // the next poll goes the slow way
	armed     bool
	closed    bool

	h   header         // of the packet being received
	pkt shmring.Packet // the same, as the ring gives it

	slotMu sync.Mutex // upgrades allocate slots in the background
	slots  slotSet
}

// hotRing is a ring that poll looks at.
type hotRing struct {
	probe shmring.Probe
	l     *shmLink
}

func newSHMWire(env wireEnv) (wire, error) {
	notif, ok := env.notif.(*epollNotifier)
	if !ok {
		return nil, errors.New("the notifier takes no file descriptors")
	}
	if err := shmring.CheckBytes(env.cfg.RingBytes); err != nil {
		return nil, err
	}
	w := &shmWire{env: env, notif: notif, links: map[deviceID]*shmLink{}, left: map[deviceID]error{}}
	w.take = func(slot uint32) {
		if l := w.bySlot[slot]; l != nil {
			w.ready = append(w.ready, l)
		}
	}
	if err := w.open(); err != nil {
		w.close()
		return nil, err
	}
	return w, nil
}

// open makes what all links share and starts to listen.
func (w *shmWire) open() (err error) {
	if err = probePidfd(); err != nil {
		return err
	}
	if w.local, err = newSHMLocal(); err != nil {
		return err
	}
	if err = w.notif.add(w.local.evfd, unix.EPOLLIN); err != nil {
		return err
	}
	w.local.added = true
	if w.watch, err = newSHMWatch(w.notif); err != nil {
		return err
	}
	if err = w.env.regions.rehome(w.local.piece); err != nil {
		return err
	}
	var name [12]byte
	_, _ = rand.Read(name[:])
	socket := fmt.Sprintf("@tagmatch-%x", name)
	ln, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	w.env.self.shm, w.env.self.host = socket, hostID()
	w.conns = newConnector(connectorConfig{
		self: w.env.self, secret: w.env.cfg.Secret, kind: WireSHM, listener: ln, log: w.env.cfg.Logger,
		dial:    dialSHM,
		prepare: w.prepare,
		upgrade: w.upgrade, yields: w.env.yields,
		limits: connLimits{retry: w.env.cfg.peerTimeout()},
		wake: func() {
			w.local.inbox.Keep(eventSlot)
			w.notif.wake()
		},
	})
	return nil
}

// dialSHM dials a. A kernel that refuses this now will do so again. Every device listens before it
// gives out its address, and nothing listens at an abstract address after a device is gone: a
// refusal is final.
func dialSHM(ctx context.Context, a *address) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", a.shm)
	if errors.Is(err, unix.ECONNREFUSED) {
		return nil, refuse(rejectClosing, "its device was closed, or its process has ended")
	}
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
		return nil, refuse(rejectYielded, "this process may not connect to its socket: %v", err)
	}
	return conn, err
}

func (w *shmWire) name() string { return WireSHM }

// connect returns the link to the device at a.
func (w *shmWire) connect(a *address) (link, error) {
	switch {
	case a.shm == "":
		return nil, errors.New("the peer has no shared memory")
	case a.host != w.env.self.host:
		return nil, errors.New("the peer is on another host, in another container or of another user")
	case w.left[a.id] != nil:
		return nil, w.left[a.id]
	}
	l := w.links[a.id]
	if l == nil || l.state == shmDead {
		l = w.newLink(a)
	}
	return l, nil
}

func (w *shmWire) newLink(a *address) *shmLink {
	copied := *a
	l := &shmLink{w: w, addr: &copied}
	w.links[a.id] = l
	return l
}

// yield leaves a peer to another wire, because of why, and returns the link to it that never came
// up, if there is one. It does nothing and returns false while the peer is connected, or cannot be.
func (w *shmWire) yield(a *address, why error) (link, bool) {
	l := w.links[a.id]
	switch {
	case a.shm == "" || a.host != w.env.self.host || w.left[a.id] != nil:
		return nil, false
	case l != nil && l.peer != nil || !w.conns.yield(a, why):
		return nil, false
	}
	w.left[a.id] = why
	if l == nil {
		return nil, true
	}
	l.state = shmDead
	delete(w.links, a.id)
	return l, true
}

// release ends the lending and tells writers what is free.
func (w *shmWire) release() {
	for _, l := range w.owing {
		l.owing, l.lent = false, false
		l.giveBack()
	}
	w.owing = w.owing[:0]
}

// flush does nothing: send publishes at once.
func (w *shmWire) flush() {}

// arm makes every arrival signal. Every store in it is a full barrier; the poll that follows is the
// last look.
func (w *shmWire) arm() {
	w.armed, w.attention = true, true
	for i := range w.hot {
		w.hot[i].l.peer.rx.SetHot(false)
	}
	w.local.drain()
	w.local.inbox.Park()
}

// disarm takes arm back. The poll that follows looks at everything: we may have been woken for any
// reason.
func (w *shmWire) disarm() {
	w.armed, w.attention = false, true
	w.local.inbox.Unpark()
	for i := range w.hot {
		w.hot[i].l.peer.rx.SetHot(true)
	}
}

// pending looks at what arm has made cold, and at what was raised before it.
func (w *shmWire) pending() bool {
	for i := range w.hot {
		if !w.hot[i].probe.Empty() {
			return true
		}
	}
	return w.local.inbox.Pending()
}

func (w *shmWire) unsignal() { w.local.drain() }

// close ends all links and the background work, and gives back every descriptor and mapping.
func (w *shmWire) close() {
	if w.closed {
		return
	}
	w.closed = true
	for _, l := range w.links {
		l.close()
	}
	if w.conns != nil {
		w.conns.close()
	}
	w.bury(false)
	w.unmapGone()
	if w.watch != nil {
		w.watch.close()
	}
	if w.local != nil {
		if w.local.added {
			_ = w.notif.del(w.local.evfd)
		}
		// Regions that outlive the wire go on on the heap.
		w.env.regions.toHeap()
		w.local.close()
	}
}
