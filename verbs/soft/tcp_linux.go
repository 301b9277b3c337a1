package soft

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
)

// tcpWire carries packets over TCP connections, one for each peer device.
//
// Nothing of it waits while the owner polls: sockets are read and written directly, without the
// netpoller. An epoll instance of the wire's own knows all sockets; it tells which of many cold
// ones have something, and it lies, silenced, in the notifier, so that arming is one system call
// whatever the number of links and a packet wakes nobody before that.
type tcpWire struct {
	env   wireEnv
	notif *epollNotifier
	conn  *connector
	ep    int

	links map[deviceID]*tcpLink // all that are not gone
	byFD  map[int32]*tcpLink    // those that are connected

	hot     []*tcpLink // recently active
	backlog []*tcpLink // with complete frames that the device has not taken, or with an end to find
	spare   []*tcpLink // backlog's other array
	dirty   []*tcpLink // with output for flush
	blocked []*tcpLink // whose output the socket refused
	lent    []*tcpLink // whose buffers the device uses

	due    atomic.Bool // it is time to look for peers that are silent
	armed  bool
	round  uint32 // polls
	idle   uint32 // polls without anything
	events [16]unix.EpollEvent
	trash  [4096]byte
}

const (
	tcpHot     = 4   // links read directly at each poll
	tcpScan    = 16  // polls between looks at the others
	tcpHotIdle = 256 // polls without a packet after which a link of many is cold

	// While nothing at all comes, only some polls look, so that a silent wire does not slow down a
	// busy one beside it.
	tcpIdle, tcpIdleMask         = 1 << 10, 1<<2 - 1
	tcpLongIdle, tcpLongIdleMask = 1 << 14, 1<<4 - 1

	tcpLinger = 500 * time.Millisecond // time for output that is left at close
)

func newTCPWire(env wireEnv) (wire, error) {
	notif, ok := env.notif.(*epollNotifier)
	if !ok {
		return nil, fmt.Errorf("a %T takes no descriptors: %w", env.notif, errors.ErrUnsupported)
	}
	ln, err := net.Listen("tcp", env.cfg.TCPListen)
	if err != nil {
		return nil, fmt.Errorf("TCPListen: %w", err)
	}
	env.self.tcp, err = reachableAt(ln.Addr())
	if err != nil {
		_ = ln.Close()
		return nil, err
	}
	w := &tcpWire{env: env, notif: notif, links: map[deviceID]*tcpLink{}, byFD: map[int32]*tcpLink{}}
	if w.ep, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		_ = ln.Close()
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	if err := notif.add(w.ep, 0); err != nil {
		_ = ln.Close()
		_ = unix.Close(w.ep)
		return nil, err
	}
	d := &tcpDialer{next: map[deviceID]int{}}
	w.conn = newConnector(connectorConfig{self: env.self, secret: env.cfg.Secret, kind: WireTCP, listener: ln,
		dial: d.dial, prepare: w.prepare, wake: notif.wake, log: env.cfg.Logger, limits: connLimits{retry: env.cfg.peerTimeout()}})
	w.conn.every(env.cfg.peerTimeout()/tcpLooks, func() {
		w.due.Store(true)
		notif.wake()
	})
	return w, nil
}

func (w *tcpWire) name() string { return WireTCP }

// connect returns the link to the device at a. It dials at the first send.
func (w *tcpWire) connect(a *address) (link, error) {
	if len(a.tcp) == 0 {
		return nil, fmt.Errorf("rank %d has no tcp address", a.rank)
	}
	if a.id == w.env.self.id {
		return nil, errors.New("tcp does not connect a device to itself")
	}
	l := w.links[a.id]
	if l == nil {
		l = &tcpLink{w: w, peer: a, fd: -1}
		w.links[a.id] = l
	}
	return l, nil
}

func (w *tcpWire) poll(budget int) int {
	if w.conn.pending() {
		w.takeConnections()
	}
	if len(w.byFD) == 0 {
		return 0
	}
	if w.due.Load() {
		w.lookForSilent()
	}
	w.round++
	if w.idle > tcpIdle && !w.armed && w.round&w.idleMask() != 0 {
		return 0
	}
	w.idle++
	w.flush()
	for i := len(w.blocked) - 1; i >= 0; i-- {
		if i < len(w.blocked) {
			w.blocked[i].write()
		}
	}
	n := w.pollBacklog(budget)
	n += w.pollHot(budget - n)
	if w.armed || w.round%tcpScan == 0 || len(w.hot) == 0 {
		n += w.scan(budget - n)
	}
	if n > 0 {
		w.idle = 0
	}
	return n
}

func (w *tcpWire) idleMask() uint32 {
	if w.idle > tcpLongIdle {
		return tcpLongIdleMask
	}
	return tcpIdleMask
}

// pollBacklog offers again what was refused or left over.
func (w *tcpWire) pollBacklog(budget int) (n int) {
	list := w.backlog
	if len(list) == 0 {
		return 0
	}
	w.backlog, w.spare = w.spare[:0], nil // what is queued meanwhile goes behind
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

// pollHot reads the links that were active lately. Links of a small job are always among them.
func (w *tcpWire) pollHot(budget int) (n int) {
	keep := w.hot[:0]
	all := len(w.byFD) <= tcpHot
	for _, l := range w.hot {
		if l.gone || !all && w.round-l.seen > tcpHotIdle {
			l.hot = false
			continue
		}
		keep = append(keep, l)
	}
	w.hot = keep
	for i := 0; i < len(w.hot) && n < budget; i++ {
		if l := w.hot[i]; l.visited != w.round && !l.gone {
			n += w.receive(l, budget-n)
		}
	}
	if len(w.hot) > 1 { // who was first goes last the next time
		first := w.hot[0]
		copy(w.hot, w.hot[1:])
		w.hot[len(w.hot)-1] = first
	}
	return n
}

// scan finds which other links have something.
func (w *tcpWire) scan(budget int) (n int) {
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
			// Whoever waits for an answer must learn of it now. What is refused was not
			// acknowledged either.
			l.fail(fmt.Errorf("%w while this side could not take a packet of it", errPeerClosed))
		case l.in.stalled || ev.Events&(unix.EPOLLIN|end) == 0:
		case n < budget:
			n += w.receive(l, budget-n)
			w.warm(l)
		}
	}
	return n
}

func (w *tcpWire) receive(l *tcpLink, budget int) int {
	l.visited = w.round
	n := l.receive(budget)
	if n > 0 {
		l.seen = w.round
	}
	return n
}

// warm makes l hot if there is a place.
func (w *tcpWire) warm(l *tcpLink) {
	if !l.hot && !l.gone && len(w.hot) < tcpHot {
		l.hot, l.seen = true, w.round
		w.hot = append(w.hot, l)
	}
}

// takeConnections gives links the connections that were made in the background.
func (w *tcpWire) takeConnections() {
	for _, r := range w.conn.take() {
		l := w.links[r.peer.id]
		if r.err != nil {
			if l != nil && l.fd < 0 {
				l.fail(r.err)
			}
			continue
		}
		if l != nil && l.fd >= 0 {
			l.fail(errors.New("the peer has given it up and made a new one"))
			l = w.links[r.peer.id]
		}
		if l == nil { // the peer was first
			l = &tcpLink{w: w, peer: r.peer, fd: -1}
			w.links[r.peer.id] = l
		}
		_ = r.conn.Close() // the socket has a descriptor of its own
		if err := l.attach(r.upgraded.(*tcpSocket)); err != nil {
			w.conn.forget(r.peer.id)
			l.fail(err)
			continue
		}
		w.byFD[int32(l.fd)] = l
		w.env.rx.linkUp(l, r.peer)
		w.idle = 0
		w.warm(l)
	}
}

// release takes back what the device was lent.
func (w *tcpWire) release() {
	for i, l := range w.lent {
		l.in.lent = false
		w.lent[i] = nil
	}
	w.lent = w.lent[:0]
}

func (w *tcpWire) flush() {
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

func (w *tcpWire) arm() {
	w.armed = true
	w.flush()
	for _, l := range w.blocked {
		l.watch()
	}
	for _, l := range w.backlog {
		if !l.in.stalled {
			w.notif.wake()
		}
		l.watch()
	}
	// Level-triggered: what came before this counts too.
	if err := w.notif.mod(w.ep, unix.EPOLLIN); err != nil {
		w.notif.wake()
	}
}

func (w *tcpWire) disarm() {
	w.armed = false
	_ = w.notif.mod(w.ep, 0)
}

func (w *tcpWire) close() {
	w.conn.close()
	end := time.Now().Add(tcpLinger)
	for _, l := range w.links {
		l.linger(end)
		l.drop()
	}
	_ = w.notif.del(w.ep)
	_ = unix.Close(w.ep)
}

// linger writes what is left, for as long as the peer takes it.
func (l *tcpLink) linger(end time.Time) {
	for l.up && l.out.pending() > 0 {
		l.write()
		left := time.Until(end)
		if l.out.pending() == 0 || left <= 0 {
			return
		}
		_, _ = unix.Poll([]unix.PollFd{{Fd: int32(l.fd), Events: unix.POLLOUT}}, int(left/time.Millisecond)+1)
	}
}

func remove(list []*tcpLink, l *tcpLink) []*tcpLink {
	if i := slices.Index(list, l); i >= 0 {
		return slices.Delete(list, i, i+1)
	}
	return list
}

// tcpDialer takes a peer's candidates in turn, one at each attempt.
type tcpDialer struct {
	mu   sync.Mutex
	next map[deviceID]int
}

func (d *tcpDialer) dial(ctx context.Context, a *address) (net.Conn, error) {
	d.mu.Lock()
	n := d.next[a.id]
	d.next[a.id] = n + 1
	d.mu.Unlock()
	dialer := net.Dialer{}
	if len(a.tcp) > 1 {
		dialer.Timeout = time.Second // one that swallows packets must not use up the time for the others
	}
	return dialer.DialContext(ctx, "tcp", a.tcp[n%len(a.tcp)])
}

// reachableAt lists where peers can dial a listener: its own address or, if that is a wildcard,
// those of the interfaces.
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
	return out[:min(len(out), maxAddressTCP)], nil
}
