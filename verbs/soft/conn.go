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
)

// connectorConfig is what a wire gives its connector.
type connectorConfig struct {
	self     *address // complete, with what the wire added
	secret   []byte
	kind     string // the wire's name; both ends must agree
	listener net.Listener
	// dial makes one attempt. Where an address has several candidates it takes another one at each call.
	dial func(ctx context.Context, a *address) (net.Conn, error)
	// upgrade, if not nil, is run on both sides after authentication, in the background. What it returns is closed, if
	// it is an io.Closer, when nobody takes it. The connector closes conn when upgrade fails.
	upgrade func(ctx context.Context, conn net.Conn, peer *address, initiator bool) (any, error)
	wake    func() // called when a result waits; any goroutine
	log     *slog.Logger
	limits  connLimits
}

// connLimits are the connector's bounds; zero fields get defaults.
type connLimits struct {
	retry     time.Duration // how long dials that fail are repeated
	strangers int           // connections that have not authenticated yet, at once
}

// connResult is a connection to a peer, dialled or accepted, or the failure of one that connect asked for.
type connResult struct {
	peer     *address
	conn     net.Conn
	upgraded any
	err      error
}

// connector makes the connections of one wire, in the background, and hands them to the owner through take.
//
// There must be one connection for each pair of devices although both may dial at once. Of two dials that cross, the one
// of the smaller id stays: its device refuses the incoming one as a duplicate, and the other device gives its own dial up
// when it lets the incoming one in. For this an acceptor adopts a connection only when the dialler has confirmed it, and a
// dialler confirms only while its dial has not been given up; connPeer says why that is enough.
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

// connect starts to dial a, unless there is a connection or one is being made. Its result, good or bad, comes by take.
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
	p.wanted, p.deadline = true, time.Now().Add(c.cfg.limits.retry)
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

// take returns what came since the last call. A second connection to the same peer says that the peer has given up the
// first.
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
	p.wanted = false
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
		c.deliver(connResult{peer: peer, err: c.failure(peer, err)})
	default:
		_ = conn.Close()
		c.cfg.log.Debug("connection failed after authentication", "wire", c.cfg.kind, "peer", peer.String(), "err", err)
	}
}

func (c *connector) runUpgrade(conn net.Conn, peer *address, initiator bool) (any, error) {
	if c.cfg.upgrade == nil {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(c.ctx, handshakeTime)
	defer cancel()
	_ = conn.SetDeadline(time.Now().Add(handshakeTime))
	// The deadline alone would let close wait for a silent peer.
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	up, err := c.cfg.upgrade(ctx, conn, peer, initiator)
	if !stop() && err == nil {
		err = ctx.Err()
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
