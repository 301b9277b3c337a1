// Package dial makes the connections of a wire in the background: it dials, accepts, authenticates,
// and sees to it that two devices that dial each other come to one connection.
package dial

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tagmatch/tagmatch/verbs/soft/internal/wire"
)

// Config is what a wire gives its connector.
type Config struct {
	Self     *wire.Address // complete, with what the wire added
	Secret   []byte
	Kind     string // the wire's name; both ends must agree
	Listener net.Listener
	// dial makes one attempt. Where an address has several candidates it takes another one at each
	// call.
	Dial func(ctx context.Context, a *wire.Address) (net.Conn, error)
	// prepare, if not nil, is run on both sides after authentication, in the background: it takes
	// what the connection needs of this process. Only if both sides have that they go on; who is
	// short of something is dialled again.
	Prepare func(conn net.Conn, peer *wire.Address) (any, error)
	// upgrade, if not nil, is run after that with what prepare has given. What it returns, or
	// prepare where there is no upgrade, is closed, if it is an io.Closer, when nobody takes it.
	// The connector closes conn when something fails. It calls commit once, when nothing but the
	// peer can fail any more and before it lets the peer know that, and ends if that fails; from
	// then on it has no time limit.
	Upgrade func(ctx context.Context, conn net.Conn, peer *wire.Address, initiator bool, prepared any, commit func() error) (any, error)
	Yields  bool   // another wire can take over: see connPeer.yielded
	Wake    func() // called when a result waits; any goroutine
	Log     *slog.Logger
	Limits  Limits
}

// Limits are the connector's bounds; zero fields get defaults.
type Limits struct {
	Retry     time.Duration // how long dials that fail are repeated, from the last sign of life of the peer's host
	strangers int           // connections that have not authenticated yet, at once
}

// Result is a connection to a peer, dialled or accepted, or the failure of one that connect
// asked for.
type Result struct {
	Peer     *wire.Address
	Conn     net.Conn
	Upgraded any
	Err      error
	Yielded  bool // of an error: this wire will not connect the two devices, and both know or will learn it
}

// Connector makes the connections of one wire, in the background, and hands them to the owner
// through take.
//
// There must be one connection for each pair of devices although both may dial at once. Of two
// dials that cross, the one of the smaller id stays: its device refuses the incoming one as a
// duplicate, and the other device gives its own dial up when it lets the incoming one in. For this
// an acceptor adopts a connection only when the dialler has confirmed it, and a dialler confirms
// only while its dial has not been given up; connPeer says why that is enough.
type Connector struct {
	cfg    Config
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
	slots  chan struct{} // one for each connection that has not authenticated

	waiting atomic.Bool // results is not empty

	mu      sync.Mutex
	closed  bool
	peers   map[wire.DeviceID]*connPeer
	results []Result
}

var errSuperseded = errors.New("the peer's own connection came first")

func New(cfg Config) *Connector {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Limits.Retry == 0 {
		cfg.Limits.Retry = 10 * time.Second
	}
	if cfg.Limits.strangers == 0 {
		cfg.Limits.strangers = 64
	}
	c := &Connector{cfg: cfg, peers: map[wire.DeviceID]*connPeer{}, slots: make(chan struct{}, cfg.Limits.strangers)}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	if cfg.Listener != nil {
		spare := &reserve{}
		_ = spare.fill() // acceptLoop tries again
		c.wg.Go(func() { c.acceptLoop(spare) })
	}
	return c
}

// Connect starts to dial a, unless there is a connection or one is being made. Its result, good or
// bad, comes by take.
func (c *Connector) Connect(a *wire.Address) {
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
		r := Result{Peer: a, Err: c.failure(a, p.yielded), Yielded: true}
		c.wg.Go(func() { c.deliver(r) })
		return
	}
	p.wanted, p.since = true, time.Now()
	c.dialIfNeededLocked(p)
}

// Change alters how connections are made from now on; for tests.
func (c *Connector) Change(f func(*Config)) {
	c.mu.Lock() // which comes before each use
	defer c.mu.Unlock()
	f(&c.cfg)
}

// Forget tells that a connection which take gave is gone, so that connect makes a new one.
func (c *Connector) Forget(id wire.DeviceID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p := c.peers[id]; p != nil {
		p.live = max(p.live-1, 0)
		c.dropIdleLocked(p)
	}
}

// Pending tells, cheaply, whether take has something.
func (c *Connector) Pending() bool { return c.waiting.Load() }

// Take returns what came since the last call. A second connection to the same peer says that the
// peer has given up the first.
func (c *Connector) Take() []Result {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting.Store(false)
	r := c.results
	c.results = nil
	return r
}

// Close ends everything in the background, waits for it, and closes what nobody took.
func (c *Connector) Close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.cancel()
	if c.cfg.Listener != nil {
		_ = c.cfg.Listener.Close()
	}
	c.wg.Wait()
	for _, r := range c.Take() {
		r.discard()
	}
}

func (r *Result) discard() {
	if cl, ok := r.Upgraded.(io.Closer); ok {
		_ = cl.Close()
	}
	if r.Conn != nil {
		_ = r.Conn.Close()
	}
}

// Every has f called at intervals, in the background, until close.
func (c *Connector) Every(d time.Duration, f func()) {
	c.wg.Go(func() {
		t := time.NewTicker(d)
		defer t.Stop()
		for {
			select {
			case <-t.C:
				f()
			case <-c.ctx.Done():
				return
			}
		}
	})
}

// deliver hands a result to the owner.
func (c *Connector) deliver(r Result) {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		r.discard()
		return
	}
	c.results = append(c.results, r)
	c.waiting.Store(true)
	c.mu.Unlock()
	if c.cfg.Wake != nil {
		c.cfg.Wake()
	}
}

// finish upgrades a confirmed connection and delivers it.
func (c *Connector) finish(p *connPeer, conn net.Conn, peer *wire.Address, initiator bool) {
	up, err := c.runUpgrade(conn, peer, initiator)
	c.mu.Lock()
	p.upgrading--
	wanted := p.wanted
	if err != nil && wanted && !c.closed && c.worthAgain(err) && time.Since(p.since) < c.patience(err) {
		p.pause = min(max(2*p.pause, 5*time.Millisecond), lastPause)
		c.dialIfNeededLocked(p)
		c.mu.Unlock()
		c.cfg.Log.Debug("connection failed, dialling again", "wire", c.cfg.Kind, "peer", peer.String(), "err", err)
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
		c.deliver(Result{Peer: peer, Conn: conn, Upgraded: up})
	case wanted:
		_ = conn.Close()
		c.deliver(Result{Peer: peer, Err: c.failure(peer, err), Yielded: yielded})
	default:
		_ = conn.Close()
		c.cfg.Log.Debug("connection failed after authentication", "wire", c.cfg.Kind, "peer", peer.String(), "err", err)
	}
}

func (c *Connector) runUpgrade(conn net.Conn, peer *wire.Address, initiator bool) (any, error) {
	if c.cfg.Prepare == nil && c.cfg.Upgrade == nil {
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
		(&Result{Upgraded: up}).discard()
		return nil, err
	}
	return up, nil
}

func (c *Connector) upgrade(ctx context.Context, conn net.Conn, peer *wire.Address, initiator bool, commit func() error) (up any, err error) {
	if c.cfg.Prepare != nil {
		up, err = c.cfg.Prepare(conn, peer)
		if err = Ready(c.cfg.Self, conn, err); err != nil {
			return up, err
		}
	}
	if c.cfg.Upgrade != nil {
		return c.cfg.Upgrade(ctx, conn, peer, initiator, up, commit)
	}
	return up, nil
}
