package soft

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tagmatch/tagmatch/verbs"
)

// connectorConfig is what a wire gives its connector.
type connectorConfig struct {
	self     *address // complete, with what the wire added
	secret   []byte
	kind     string // the wire's name; both ends must agree
	listener net.Listener
	// dial makes one attempt. Where an address has several candidates it takes another one at each
	// call.
	dial func(ctx context.Context, a *address) (net.Conn, error)
	// prepare, if not nil, is run on both sides after authentication, in the background: it takes
	// what the connection needs of this process. Only if both sides have that they go on; who is
	// short of something is dialled again.
	prepare func(conn net.Conn, peer *address) (any, error)
	// upgrade, if not nil, is run after that with what prepare has given. What it returns, or
	// prepare where there is no upgrade, is closed, if it is an io.Closer, when nobody takes it.
	// The connector closes conn when something fails. It calls commit once, when nothing but the
	// peer can fail any more and before it lets the peer know that, and ends if that fails; from
	// then on it has no time limit.
	upgrade func(ctx context.Context, conn net.Conn, peer *address, initiator bool, prepared any, commit func() error) (any, error)
	yields  bool   // another wire can take over: see connPeer.yielded
	wake    func() // called when a result waits; any goroutine
	log     *slog.Logger
	limits  connLimits
}

// connLimits are the connector's bounds; zero fields get defaults.
type connLimits struct {
	retry     time.Duration // how long dials that fail are repeated, from the last sign of life of the peer's host
	strangers int           // connections that have not authenticated yet, at once
}

// connResult is a connection to a peer, dialled or accepted, or the failure of one that connect
// asked for.
type connResult struct {
	peer     *address
	conn     net.Conn
	upgraded any
	err      error
	yielded  bool // of an error: this wire will not connect the two devices, and both know or will learn it
}

// connector makes the connections of one wire, in the background, and hands them to the owner
// through take.
//
// There must be one connection for each pair of devices although both may dial at once. Of two
// dials that cross, the one of the smaller id stays: its device refuses the incoming one as a
// duplicate, and the other device gives its own dial up when it lets the incoming one in. For this
// an acceptor adopts a connection only when the dialler has confirmed it, and a dialler confirms
// only while its dial has not been given up; connPeer says why that is enough.
type connector struct {
	cfg    connectorConfig
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
	slots  chan struct{} // one for each connection that has not authenticated

	waiting atomic.Bool // results is not empty

	mu      sync.Mutex
	closed  bool
	peers   map[deviceID]*connPeer
	results []connResult
}

var (
	errSuperseded = errors.New("the peer's own connection came first")
	errPeerEnded  = verbs.ErrPeerEnded
)

func newConnector(cfg connectorConfig) *connector {
	if cfg.log == nil {
		cfg.log = slog.New(slog.DiscardHandler)
	}
	if cfg.limits.retry == 0 {
		cfg.limits.retry = 10 * time.Second
	}
	if cfg.limits.strangers == 0 {
		cfg.limits.strangers = 64
	}
	c := &connector{cfg: cfg, peers: map[deviceID]*connPeer{}, slots: make(chan struct{}, cfg.limits.strangers)}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	if cfg.listener != nil {
		c.wg.Go(c.acceptLoop)
	}
	return c
}

// connect starts to dial a, unless there is a connection or one is being made. Its result, good or
// bad, comes by take.
func (c *connector) connect(a *address) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	p := c.peerLocked(a)
	if p.wanted || p.live > 0 {
		return
	}
	if p.yielded != nil {
		r := connResult{peer: a, err: c.failure(a, p.yielded), yielded: true}
		c.wg.Go(func() { c.deliver(r) })
		return
	}
	p.wanted, p.since = true, time.Now()
	c.dialIfNeededLocked(p)
}

// forget tells that a connection which take gave is gone, so that connect makes a new one.
func (c *connector) forget(id deviceID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p := c.peers[id]; p != nil {
		p.live = max(p.live-1, 0)
		c.dropIdleLocked(p)
	}
}

// pending tells, cheaply, whether take has something.
func (c *connector) pending() bool { return c.waiting.Load() }

// take returns what came since the last call. A second connection to the same peer says that the
// peer has given up the first.
func (c *connector) take() []connResult {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting.Store(false)
	r := c.results
	c.results = nil
	return r
}

// close ends everything in the background, waits for it, and closes what nobody took.
func (c *connector) close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.cancel()
	if c.cfg.listener != nil {
		_ = c.cfg.listener.Close()
	}
	c.wg.Wait()
	for _, r := range c.take() {
		r.discard()
	}
}

func (r *connResult) discard() {
	if cl, ok := r.upgraded.(io.Closer); ok {
		_ = cl.Close()
	}
	if r.conn != nil {
		_ = r.conn.Close()
	}
}

// deliver hands a result to the owner.
func (c *connector) deliver(r connResult) {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		r.discard()
		return
	}
	c.results = append(c.results, r)
	c.waiting.Store(true)
	c.mu.Unlock()
	if c.cfg.wake != nil {
		c.cfg.wake()
	}
}

// finish upgrades a confirmed connection and delivers it.
func (c *connector) finish(p *connPeer, conn net.Conn, peer *address, initiator bool) {
	up, err := c.runUpgrade(conn, peer, initiator)
	c.mu.Lock()
	p.upgrading--
	wanted := p.wanted
	if err != nil && wanted && !c.closed && c.worthAgain(err) && time.Since(p.since) < c.patience(err) {
		p.pause = min(max(2*p.pause, 5*time.Millisecond), lastPause)
		c.dialIfNeededLocked(p)
		c.mu.Unlock()
		c.cfg.log.Debug("connection failed, dialling again", "wire", c.cfg.kind, "peer", peer.String(), "err", err)
		_ = conn.Close()
		return
	}
	p.wanted, p.pause = false, 0
	// Who did not ask for it leaves it to the peer whether it is tried again.
	if err != nil && (wanted || !c.worthAgain(err)) && c.mayYieldLocked(p, err) {
		p.yielded = err
	}
	yielded := p.yielded != nil
	if err == nil {
		p.live++
	} else {
		c.dropIdleLocked(p)
	}
	c.mu.Unlock()
	switch {
	case err == nil:
		c.deliver(connResult{peer: peer, conn: conn, upgraded: up})
	case wanted:
		_ = conn.Close()
		c.deliver(connResult{peer: peer, err: c.failure(peer, err), yielded: yielded})
	default:
		_ = conn.Close()
		c.cfg.log.Debug("connection failed after authentication", "wire", c.cfg.kind, "peer", peer.String(), "err", err)
	}
}

func (c *connector) runUpgrade(conn net.Conn, peer *address, initiator bool) (any, error) {
	if c.cfg.prepare == nil && c.cfg.upgrade == nil {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(c.ctx, handshakeTime)
	defer cancel()
	_ = conn.SetDeadline(time.Now().Add(handshakeTime))
	// The deadline alone would let close wait for a silent peer.
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	// Who has committed cannot know what the peer does: it waits until the peer says or is gone,
	// however long that takes.
	commit := func() error {
		if !stop() {
			return ctx.Err()
		}
		stop = context.AfterFunc(c.ctx, func() { _ = conn.Close() })
		return conn.SetDeadline(time.Time{})
	}
	up, err := c.upgrade(ctx, conn, peer, initiator, commit)
	if !stop() && err == nil {
		err = context.Canceled
	}
	if err == nil {
		err = conn.SetDeadline(time.Time{})
	}
	if err != nil {
		(&connResult{upgraded: up}).discard()
		return nil, err
	}
	return up, nil
}

func (c *connector) upgrade(ctx context.Context, conn net.Conn, peer *address, initiator bool, commit func() error) (up any, err error) {
	if c.cfg.prepare != nil {
		up, err = c.cfg.prepare(conn, peer)
		if err = c.cfg.self.ready(conn, err); err != nil {
			return up, err
		}
	}
	if c.cfg.upgrade != nil {
		return c.cfg.upgrade(ctx, conn, peer, initiator, up, commit)
	}
	return up, nil
}
