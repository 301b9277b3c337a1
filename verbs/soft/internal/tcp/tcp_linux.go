package tcp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tagmatch/tagmatch/internal/ports"
	"github.com/tagmatch/tagmatch/internal/spin"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/dial"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/notify"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/wire"
)

// Wire carries packets over TCP connections, one for each peer device. Only the device's owner uses
// it, except for due.
//
// The owner reads and writes nonblocking sockets itself, without the netpoller. The wire has an
// epoll instance of its sockets. It finds which of the cold ones have input. It is also in the
// notifier, with its events enabled only while the wire is armed: without that packets wake nobody.
// Hot sockets through which packets keep coming are not in it, as it costs each of those (leave);
// arming adds them again.
type Wire struct {
	env   wire.Env
	notif *notify.Epoll
	conn  *dial.Connector
	ep    int // epoll of the sockets

	links map[wire.DeviceID]*link // links that are not gone
	byFD  map[int32]*link         // links that are connected

	hot     []*link // read at each poll; at most maxHot (link.hot)
	backlog []*link // may have input that is not in the socket, see link.visit (link.queued)
	spare   []*link // empty, with the array that backlog had before
	dirty   []*link // have output for Flush (output.dirty)
	blocked []*link // have output that the socket has refused (output.blocked)

	due     atomic.Bool // lookForSilent is due
	armed   bool
	listens bool                // events of the sockets are enabled in the notifier
	round   uint32              // calls of Poll
	idle    uint32              // calls since something was sent or received, without those that idleMask ends
	events  [16]unix.EpollEvent // result of scan
	trash   [4096]byte          // see drop
}

const (
	maxHot    = 4  // the most hot links
	scanEvery = 16 // polls from one scan of the others to the next
	// The same where there are no others: only the end of a link that is stalled is to be found.
	scanHotEvery = 256

	pauses     = 36  // of the processor between two looks, see pause; some 700 ns
	leaveAfter = 32  // so many polls of a hot link find packets before it leaves the epoll
	hotIdle    = 256 // a hot link becomes cold after so many polls without packets, if there are more

	// On a wire without traffic only some polls make system calls, so that it does not slow down
	// another wire of the device: after shortIdle idle polls one in 4, after longIdle one in 16.
	shortIdle, shortIdleMask = 1 << 10, 1<<2 - 1
	longIdle, longIdleMask   = 1 << 14, 1<<4 - 1
)

// Open listens on listen, a host:port, or at a port of the range where that is 0.
func Open(env wire.Env, listen string, within ports.Range) (wire.Wire, error) {
	notif, ok := env.Notifier.(*notify.Epoll)
	if !ok {
		return nil, fmt.Errorf("a %T takes no descriptors: %w", env.Notifier, errors.ErrUnsupported)
	}
	ln, err := listenAt(listen, within)
	if err != nil {
		return nil, fmt.Errorf("TCPListen: %w", err)
	}
	env.Self.TCP, err = reachableAt(ln.Addr())
	if err != nil {
		_ = ln.Close()
		return nil, err
	}
	w := &Wire{env: env, notif: notif, links: map[wire.DeviceID]*link{}, byFD: map[int32]*link{}}
	if w.ep, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		_ = ln.Close()
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	if err := notif.Add(w.ep, 0); err != nil {
		_ = ln.Close()
		_ = unix.Close(w.ep)
		return nil, err
	}
	d := &dialer{next: map[wire.DeviceID]int{}}
	cfg := dial.Config{Self: env.Self, Secret: env.Secret, Kind: wire.TCP, Listener: ln,
		Dial: d.dial, Turns: true, Guard: w.guard, Prepare: w.prepare, Wake: notif.Wake, Log: env.Log,
		Retry: env.PeerTimeout}
	if env.TLS != nil {
		cfg.Kind, cfg.Upgrade = wire.TCP+", TLS "+env.TLS.Kind(), w.upgrade
	}
	w.conn = dial.New(cfg)
	w.conn.Every(w.lookEvery(), func() {
		w.due.Store(true)
		notif.Wake()
	})
	return w, nil
}

func (w *Wire) Name() string { return wire.TCP }

// Reaches implements wire.Wire.
func (w *Wire) Reaches(a *wire.Address) error {
	switch {
	case len(a.TCP) == 0:
		return fmt.Errorf("rank %d has no tcp address", a.Rank)
	case a.ID == w.env.Self.ID:
		return errors.New("tcp does not connect a device to itself")
	}
	return nil
}

// Connect returns the link to the device at a. It connects at the first Send.
func (w *Wire) Connect(a *wire.Address) (wire.Link, error) {
	if err := w.Reaches(a); err != nil {
		return nil, err
	}
	l := w.links[a.ID]
	if l == nil {
		w.conn.Expect(a.ID)
		l = &link{w: w, peer: a, fd: -1}
		w.links[a.ID] = l
	}
	return l, nil
}

// Poll receives, and retries output that a socket has refused.
func (w *Wire) Poll(budget int) int {
	if w.conn.Pending() {
		w.takeConnections(w.conn.Take())
	}
	if len(w.byFD) == 0 {
		return 0
	}
	if w.due.Load() {
		w.lookForSilent()
	}
	w.round++
	if w.idle > shortIdle && !w.armed && w.round&w.idleMask() != 0 {
		return 0
	}
	w.idle++
	w.Flush()
	for i := len(w.blocked) - 1; i >= 0; i-- {
		if i < len(w.blocked) {
			w.blocked[i].write()
		}
	}
	n := w.pollBacklog(budget)
	n += w.pollHot(budget - n)
	every, all := uint32(scanEvery), len(w.hot) == len(w.byFD)
	if all {
		every = scanHotEvery // each was just read from
	}
	if w.armed && (!all || len(w.backlog) > 0) || w.round%every == 0 || len(w.hot) == 0 {
		n += w.scan(budget - n)
	}
	if n > 0 {
		w.idle = 0
	} else if w.env.Alone && !w.armed && w.idle < shortIdle {
		pause()
	}
	return n
}

// pause makes the next look at the sockets a little later. A read of an empty socket has it locked,
// half of the time if reads follow each other at once, and whoever brings a packet waits for that.
func pause() {
	for range pauses {
		spin.Pause()
	}
}

func (w *Wire) idleMask() uint32 {
	if w.idle > longIdle {
		return longIdleMask
	}
	return shortIdleMask
}

// pollBacklog receives from the links of the backlog.
func (w *Wire) pollBacklog(budget int) (n int) {
	list := w.backlog
	if len(list) == 0 {
		return 0
	}
	w.backlog, w.spare = w.spare[:0], nil // receive adds to it
	for i, l := range list {
		list[i] = nil
		l.queued = false
		if l.gone {
			continue
		}
		if n >= budget {
			l.visit()
			continue
		}
		n += w.receive(l, budget-n)
	}
	w.spare = list
	return n
}

// pollHot receives from the hot links. If there are no more than maxHot links, all stay hot.
func (w *Wire) pollHot(budget int) (n int) {
	keep := w.hot[:0]
	all := len(w.byFD) <= maxHot
	for _, l := range w.hot {
		if l.gone {
			l.hot = false
			continue
		}
		if !all && w.round-l.seen > hotIdle {
			if l.watch(); l.events != 0 {
				l.hot = false
				continue
			}
		}
		keep = append(keep, l)
	}
	w.hot = keep
	for i := 0; i < len(w.hot) && n < budget; i++ {
		if l := w.hot[i]; l.visited != w.round && !l.gone {
			n += w.receive(l, budget-n)
		}
	}
	wire.Rotate(w.hot)
	return n
}

// scan receives from those other links that have input.
func (w *Wire) scan(budget int) (n int) {
	k, e := rawEpoll(w.ep, w.events[:])
	if e != 0 {
		return 0
	}
	for _, ev := range w.events[:k] {
		l := w.byFD[ev.Fd]
		if l == nil || l.visited == w.round && !l.in.stalled {
			continue
		}
		const end = unix.EPOLLRDHUP | unix.EPOLLHUP | unix.EPOLLERR
		switch {
		case l.in.stalled && ev.Events&end != 0:
			// Requests to this peer will not be answered, and must fail now. The packet that waits
			// to be taken was not acknowledged.
			l.fail(fmt.Errorf("%w while this side could not take a packet of it", errPeerClosed))
		case l.in.stalled || ev.Events&(unix.EPOLLIN|end) == 0:
		case n < budget:
			n += w.receive(l, budget-n)
			w.warm(l)
		}
	}
	return n
}

// receive receives at most budget packets from a link.
func (w *Wire) receive(l *link, budget int) int {
	l.visited = w.round
	n := l.receive(budget)
	if n > 0 {
		l.seen = w.round
		if l.news++; l.news >= leaveAfter {
			l.leave()
		}
	}
	if l.in.stalled && l.events == 0 {
		l.watch()
	}
	return n
}

// warm makes l hot if fewer than maxHot links are.
func (w *Wire) warm(l *link) {
	if !l.hot && !l.gone && len(w.hot) < maxHot {
		l.hot, l.seen = true, w.round
		w.hot = append(w.hot, l)
	}
}

// takeConnections handles connections that were made in the background, or have failed.
func (w *Wire) takeConnections(results []dial.Result) {
	for _, r := range results {
		l := w.links[r.Peer.ID]
		if r.Err != nil {
			if l != nil && l.fd < 0 {
				l.fail(r.Err)
			}
			continue
		}
		if l != nil && l.fd >= 0 {
			l.fail(errors.New("the peer has given it up and made a new one"))
			l = w.links[r.Peer.ID]
		}
		if l == nil { // the peer has connected
			l = &link{w: w, peer: r.Peer, fd: -1}
			w.links[r.Peer.ID] = l
		}
		_ = r.Conn.Close() // socket.fd is a duplicate
		if err := l.attach(r.Upgraded.(*socket)); err != nil {
			w.conn.Forget(r.Peer.ID)
			l.fail(err)
			continue
		}
		w.byFD[int32(l.fd)] = l
		w.listen()
		w.env.Receiver.LinkUp(l, r.Peer)
		w.idle = 0
		w.warm(l)
	}
}

// Flush writes what Send has only copied.
func (w *Wire) Flush() {
	if len(w.dirty) == 0 {
		return
	}
	for i, l := range w.dirty {
		l.out.dirty = false
		w.dirty[i] = nil
		if l.up && !l.out.blocked {
			l.write()
		}
	}
	w.dirty = w.dirty[:0]
}

// Arm makes arrivals wake the notifier: all of them, as the kernel does not know which are urgent.
func (w *Wire) Arm(bool) {
	w.armed = true
	w.Flush()
	for _, l := range w.hot {
		l.watch()
	}
	for _, l := range w.blocked {
		l.watch()
	}
	for _, l := range w.backlog {
		if !l.in.stalled {
			w.notif.Wake()
		}
		l.watch()
	}
	w.listen()
}

// listen enables the events of the sockets, if there are any, while the wire is armed.
// Level-triggered: input that is there already counts too.
func (w *Wire) listen() {
	if w.armed && !w.listens && len(w.byFD) > 0 {
		w.listens = w.notif.Mod(w.ep, unix.EPOLLIN) == nil
		if !w.listens {
			w.notif.Wake()
		}
	}
}

// Disarm takes back Arm.
func (w *Wire) Disarm() {
	w.armed = false
	if w.listens {
		w.listens = false
		_ = w.notif.Mod(w.ep, 0)
	}
}

// Close ends all links, those too that no poll has found. What the sockets have not taken is lost:
// it waits for nobody.
func (w *Wire) Close() {
	w.takeConnections(w.conn.Close())
	for _, l := range w.links {
		l.Close()
	}
	_ = w.notif.Del(w.ep)
	_ = unix.Close(w.ep)
}

// remove deletes a link from a list.
func remove(list []*link, l *link) []*link {
	if i := slices.Index(list, l); i >= 0 {
		return slices.Delete(list, i, i+1)
	}
	return list
}

// dialer dials the addresses of a peer in turn, one at each attempt.
type dialer struct {
	mu   sync.Mutex
	next map[wire.DeviceID]int // attempts so far
}

func (d *dialer) dial(ctx context.Context, a *wire.Address) (net.Conn, error) {
	d.mu.Lock()
	n := d.next[a.ID]
	d.next[a.ID] = n + 1
	d.mu.Unlock()
	dialer := net.Dialer{}
	if len(a.TCP) > 1 {
		dialer.Timeout = time.Second // an address without an answer must leave time for the others
	}
	return dialer.DialContext(ctx, "tcp", a.TCP[n%len(a.TCP)])
}

func listenAt(listen string, within ports.Range) (net.Listener, error) {
	if host, port, err := net.SplitHostPort(listen); err == nil && port == "0" {
		return within.Listen(context.Background(), host)
	}
	return net.Listen("tcp", listen)
}

// reachableAt lists the addresses at which peers can dial a listener: its own or, if that is a
// wildcard, those of the interfaces.
func reachableAt(at net.Addr) ([]string, error) {
	t, ok := at.(*net.TCPAddr)
	if !ok || !t.IP.IsUnspecified() {
		return []string{at.String()}, nil
	}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("TCPListen %v: listing the interfaces' addresses: %w", at, err)
	}
	var out, local []string
	for _, a := range addrs {
		n, ok := a.(*net.IPNet)
		if !ok || n.IP.IsLinkLocalUnicast() || t.IP.To4() != nil && n.IP.To4() == nil {
			continue
		}
		c := (&net.TCPAddr{IP: n.IP, Port: t.Port}).String()
		if n.IP.IsLoopback() {
			local = append(local, c)
		} else {
			out = append(out, c)
		}
	}
	if len(out) == 0 {
		out = local
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("TCPListen %v: no interface has an address", at)
	}
	return out[:min(len(out), wire.MaxAddressTCP)], nil
}
