// Package dial makes the connections of a wire in the background: it dials, accepts and
// authenticates, and gives two devices that dial each other at the same time one connection.
package dial

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tagmatch/tagmatch/internal/door"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/wire"
)

// Config is what a wire gives its Connector. The functions are called in the background.
type Config struct {
	Self     *wire.Address // complete: what the wire adds is there
	Secret   []byte        // the job's
	Kind     string        // the wire's name; both ends must have the same
	Listener net.Listener  // the Connector closes it; nil: nothing is accepted
	// From says who has dialled a connection of Listener, or fails for those with whom this device
	// never connects, whatever they say. Nil: by IP address.
	From func(conn net.Conn) (door.Who, error)
	// Dial makes one attempt. Of several addresses of a peer, each call takes the next.
	Dial func(ctx context.Context, a *wire.Address) (net.Conn, error)
	// Turns says that these are the addresses of wire.Address.TCP.
	Turns bool
	// Guard, if not nil, has a new connection, at either end, end by ETIMEDOUT when the peer's host
	// is silent for Retry. Nothing else ends a connection to a peer that does not go on: its
	// process may be stopped, or have no processor.
	Guard func(conn net.Conn) error
	// Prepare, if not nil, acquires the descriptors and memory that the connection needs, at both
	// ends after authentication. If an end is short of them, the peer is dialled again.
	Prepare func(conn net.Conn, peer *wire.Address) (any, error)
	// Upgrade, if not nil, replaces the result of Prepare, once both ends have prepared. If it
	// fails the Connector closes conn, and a result that is an io.Closer.
	Upgrade func(conn net.Conn, prepared any) (any, error)
	Yields  bool          // the peer can be left to another wire: see connPeer.yielded
	Wake    func()        // called when Take has a result
	Log     *slog.Logger  // nil: silent
	Retry   time.Duration // how long the peer's host may be silent, and refusals are followed by another dial
	Refused time.Duration // so long at most if nobody listens there; 0: refusedTime
}

// Result is a connection to a peer, dialled or accepted, or the failure of one that Connect has
// asked for.
type Result struct {
	Peer     *wire.Address
	Conn     net.Conn // nil with Err
	Upgraded any      // result of Upgrade or Prepare
	Err      error
	Yielded  bool // with Err: this wire never connects the two devices, and the peer comes to know it
}

// Connector makes the connections of one wire in the background. The device's owner gets them from
// Take.
//
// Two devices have one connection even if they dial each other at the same time. Of two such dials
// that of the device with the smaller ID is kept: this device refuses the incoming connection as a
// duplicate, and the other device gives up its own dial when it admits the incoming one. To this
// end an acceptor adopts a connection only after the dialler has confirmed it, and a dialler
// confirms only if its dial was not given up. connPeer says why that is enough.
type Connector struct {
	cfg    Config // constant
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup // all background goroutines
	door   *door.Door     // nil without a listener
	nonces door.Nonces    // of hellos
	spare  reserve

	waiting atomic.Bool // results is not empty

	mu      sync.Mutex
	closed  bool
	peers   map[wire.DeviceID]*connPeer
	results []Result // for Take, oldest first
}

// maxStrangers is how many connections are open at once that may not be of the job.
const maxStrangers = 64

var errSuperseded = errors.New("the peer's own connection came first")

// New starts a Connector. The owner calls Close.
func New(cfg Config) *Connector {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	c := &Connector{cfg: cfg, peers: map[wire.DeviceID]*connPeer{}}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	if cfg.Listener != nil {
		_ = c.spare.fill() // accept tries again
		c.door = door.Open(door.Config{Listener: cfg.Listener, Accept: c.accept, From: cfg.From, Greeting: helloPrefix + maxHello, Known: c.knows,
			Serve: c.serve, Strangers: maxStrangers, Failed: c.acceptShort, Warn: c.warn})
	}
	return c
}

// Connect dials a, unless there is a connection or one is being made. Take returns the result.
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
	p.wanted, p.failed, p.silent, p.refused = true, nil, 0, 0
	c.dialIfNeededLocked(p)
}

// Forget reports that a connection which Take has returned is closed: Connect makes a new one.
func (c *Connector) Forget(id wire.DeviceID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p := c.peers[id]; p != nil {
		p.live = max(p.live-1, 0)
		c.dropIdleLocked(p)
	}
}

// Pending reports, cheaply, whether Take has results.
func (c *Connector) Pending() bool { return c.waiting.Load() }

// Take returns the results since the last call. If a peer with a connection gets another one, the
// peer has given up the first.
func (c *Connector) Take() []Result {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting.Store(false)
	r := c.results
	c.results = nil
	return r
}

// Close ends all background goroutines, waits for them, and returns what Take has not. Connections
// among it may be those of peers already, which are to be told why they end.
func (c *Connector) Close() []Result {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.cancel()
	if c.door != nil {
		c.door.Close()
		c.door.Wait()
		c.spare.empty()
	}
	c.wg.Wait()
	return c.Take()
}

// Duplicate returns a descriptor of a connection that is not in Go's netpoller, or -1 and an error.
// The caller owns it.
func Duplicate(conn syscall.Conn) (fd int, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return -1, err
	}
	fd = -1
	cerr := raw.Control(func(old uintptr) { fd, err = unix.FcntlInt(old, unix.F_DUPFD_CLOEXEC, 0) })
	return fd, os.NewSyscallError("fcntl", errors.Join(cerr, err))
}

// Every calls f in the background every d, until Close.
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

// deliver queues a result for Take, or for Close, which is told of no failures.
func (c *Connector) deliver(r Result) {
	c.mu.Lock()
	if c.closed && r.Err != nil {
		c.mu.Unlock()
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
func (c *Connector) finish(p *connPeer, conn net.Conn, peer *wire.Address) {
	up, err := c.runUpgrade(conn, peer)
	c.mu.Lock()
	p.upgrading--
	wanted := p.wanted
	pause := min(max(2*p.pause, 5*time.Millisecond), lastPause)
	if err != nil && wanted && !c.closed && c.worthAgain(err) && c.patientLocked(p, err, pause) {
		p.pause = pause
		c.dialIfNeededLocked(p)
		c.mu.Unlock()
		c.cfg.Log.Debug("connection failed, dialling again", "wire", c.cfg.Kind, "peer", peer.String(), "err", err)
		_ = conn.Close()
		return
	}
	p.wanted, p.pause = false, 0
	// An end that has not asked for the connection leaves it to the peer to try again.
	if err != nil && (wanted || !c.worthAgain(err)) && c.mayYieldLocked(p, err) {
		p.yielded = err
	}
	yielded := p.yielded != nil
	if err != nil && wanted && !yielded {
		p.failed = c.explained(err)
	}
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

// runUpgrade calls Prepare and Upgrade. The peer is of the job, and takes the time that it takes.
func (c *Connector) runUpgrade(conn net.Conn, peer *wire.Address) (any, error) {
	stop := context.AfterFunc(c.ctx, func() { _ = conn.Close() })
	defer stop()
	up, err := c.upgrade(conn, peer)
	if err == nil {
		return up, nil
	}
	if cl, ok := up.(io.Closer); ok {
		_ = cl.Close()
	}
	return nil, err
}

func (c *Connector) upgrade(conn net.Conn, peer *wire.Address) (up any, err error) {
	if c.cfg.Prepare != nil {
		up, err = c.cfg.Prepare(conn, peer)
		if err = Ready(c.cfg.Self, conn, err); err != nil {
			return up, err
		}
	}
	if c.cfg.Upgrade != nil {
		return c.cfg.Upgrade(conn, up)
	}
	return up, nil
}
