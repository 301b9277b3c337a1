package rendezvous

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/tagmatch/tagmatch/internal/door"
	"github.com/tagmatch/tagmatch/internal/keepalive"
	"github.com/tagmatch/tagmatch/internal/secure"
)

// What all ranks have put goes to all ranks, which at rank 0 alone would be the square of their
// number. So RELEASE, and nothing else, comes down a tree: rank 0 sends it to fanOut ranks, each of
// these to fanOut others. A rank that cannot reach its parent, or loses it, asks rank 0 for what it
// has not got (WANT), as rank 0 has a connection to each: the tree saves time, and nothing depends
// on it.
//
// A rank dials its parent after WELCOME, as it dialed rank 0; the key of that handshake is derived
// from the job's secret, which both know by then.

// fanOut is how many ranks get RELEASE from each, for a descriptor each.
const fanOut = 6

// tree says from which rank another one gets RELEASE.
type tree struct{ size, fan int }

// parent is 0 for those that get it from rank 0.
func (t tree) parent(rank int) int { return max(rank-1, 0) / t.fan }

// passes reports whether rank, other than 0, is the parent of another one.
func (t tree) passes(rank int) bool { return rank > 0 && rank*t.fan+1 < t.size }

// relayKey is the key of handshakes between ranks.
func relayKey(e *Endpoint) []byte {
	h := hmac.New(sha256.New, e.info.Secret)
	h.Write([]byte("tagmatch rendezvous 3: relay of job " + e.info.JobID))
	return h.Sum(nil)
}

// relay passes RELEASE on to this rank's children.
type relay struct {
	tree   tree
	rank   int
	cfg    *Config
	ln     net.Listener
	key    []byte     // once it runs
	door   *door.Door // likewise; else nil
	nonces door.Nonces
	guests guests

	mu       sync.Mutex // guards the fields below
	last     *releaseMsg
	children map[*remote]bool
	ended    bool // nothing more will come that could be passed on
	closed   bool
}

func newRelay(ctx context.Context, j *Job, ip netip.Addr, cfg *Config) (*relay, error) {
	ln, err := j.Listen(ctx, cfg, ip.String())
	if err != nil {
		return nil, err
	}
	return &relay{tree: tree{j.Size, cfg.fanOut}, rank: j.Rank, cfg: cfg, ln: ln, children: map[*remote]bool{}}, nil
}

// port is what HELLO tells; 0 where there is no relay.
func (r *relay) port() uint16 {
	if r == nil {
		return 0
	}
	return uint16(r.ln.Addr().(*net.TCPAddr).Port)
}

// startRelay begins to serve this rank's children, and to read from its parent.
func (e *Endpoint) startRelay(cfg *Config) {
	if r := e.children; r != nil {
		r.key = relayKey(e)
		r.door = door.Open(door.Config{Listener: r.ln, Greeting: mostGreeting, Known: knownBy(r.vouch), Serve: r.visit, Strangers: maxStrangers,
			Failed: func(err error) (net.Conn, error) { return nil, err }, // those that do not get through ask rank 0
			Warn: func(t door.Turned) {
				r.cfg.Logger.Warn("rendezvous: connections to pass on what was put were turned away", "count", t.N, "last", t.From, "error", t.Err)
			}})
	}
	if c := e.parent; c != nil {
		c.done.Go(func() { c.run(cfg) })
	}
}

// visit serves a connection.
func (r *relay) visit(v *door.Visitor) error {
	if !r.guests.keep(v.Conn) {
		return net.ErrClosed
	}
	defer r.guests.forget(v.Conn)
	err := r.serve(v)
	if v.Passed() {
		r.cfg.Logger.Debug("rendezvous: a connection to pass on what was put has ended", "from", v.RemoteAddr(), "error", err)
	}
	return err
}

// vouch returns nil for the HELLO of a child of this rank that knows the job's secret.
func (r *relay) vouch(hello *helloMsg) error {
	if int64(hello.rank) >= int64(r.tree.size) || r.tree.parent(int(hello.rank)) != r.rank {
		return Errorf(ErrProtocol, "rank %d is no child of rank %d", hello.rank, r.rank)
	}
	return hello.vouch(r.key, &r.nonces)
}

// serve sends RELEASE to a child, until it closes the connection.
func (r *relay) serve(v *door.Visitor) error {
	f, err := r.handshake(v)
	if err != nil {
		return err
	}
	want, err := expect[*wantMsg](f, maxHandshake)
	if err != nil {
		return err
	}
	m := newRemote(f, nil, 0)
	if !r.add(m, want.have) {
		return net.ErrClosed
	}
	go m.writeLoop()              // ends by finish
	_, err = f.read(maxHandshake) // it says nothing more
	r.mu.Lock()
	delete(r.children, m)
	r.mu.Unlock()
	m.finish()
	return err
}

// handshake lets in children of this rank that know the job's secret.
func (r *relay) handshake(v *door.Visitor) (*framer, error) {
	f, hello, _, err := greeted(v.Conn, r.cfg)
	switch {
	case err != nil:
		return nil, err
	case hello == nil:
		return nil, ErrVersion
	}
	if err := v.Pass(func() error { return r.vouch(hello) }); err != nil {
		return nil, err
	}
	_ = v.SetDeadline(time.Now().Add(r.cfg.handshake))
	proofs, err := f.challenge(r.key, hello)
	if err != nil {
		return nil, err
	}
	if err := f.accept(proofs); err != nil {
		return nil, err
	}
	return f, f.upgrade(r.cfg.TLS, secure.End{Key: r.key})
}

// add begins to pass on to a child, which has the answers to the first fences already, unless this
// rank is leaving.
func (r *relay) add(m *remote, have uint32) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return false
	}
	_ = m.f.conn.SetDeadline(time.Time{}) // not after close has set one
	if r.ended {
		_ = m.f.conn.SetReadDeadline(time.Unix(1, 0)) // after what is there, nothing
	}
	r.children[m] = true
	if r.last != nil && r.last.seq > have {
		m.deliver(r.last)
	}
	return true
}

// pass passes a RELEASE on. It does not block.
func (r *relay) pass(msg *releaseMsg) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.last != nil && r.last.seq >= msg.seq {
		return
	}
	r.last = msg.bare()
	for m := range r.children {
		m.deliver(r.last)
	}
}

// end closes the connections to the children once what there is was written. Those that come later
// get that too. So a child of which the connection has ended knows that nothing more comes. It does
// not block.
func (r *relay) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = true
	for m := range r.children {
		_ = m.f.conn.SetReadDeadline(time.Unix(1, 0)) // serve stops reading, and finishes writing
	}
}

// close ends the relay once what it has to pass on was written, or after a second.
func (r *relay) close() {
	_ = r.ln.Close() // there is no door yet where the join has failed
	r.mu.Lock()
	r.closed = true // no deadline is put off any more, see add
	r.mu.Unlock()
	if r.door != nil {
		r.door.Close()
		r.guests.close(time.Second, r.door.Wait)
	}
}

// child is this rank's connection to its parent.
type child struct {
	e      *Endpoint
	parent netip.AddrPort
	done   sync.WaitGroup
	ended  chan struct{} // closed when nothing comes from the parent any more
	ctx    context.Context
	stop   context.CancelFunc
}

func newChild(e *Endpoint, parent netip.AddrPort) *child {
	c := &child{e: e, parent: parent, ended: make(chan struct{})}
	c.ctx, c.stop = context.WithCancel(context.Background())
	return c
}

// run takes RELEASE from the parent, and after a failure of that from rank 0.
func (c *child) run(cfg *Config) {
	err := c.read(cfg)
	close(c.ended)
	if c.ctx.Err() != nil {
		return
	}
	cfg.Logger.Debug("rendezvous: what was put comes from rank 0 from now on", "parent", c.parent, "error", err)
	c.e.mu.Lock()
	have := c.e.fences
	c.e.mu.Unlock()
	_ = c.e.up.send(&wantMsg{have}) // where that fails too the fence does
}

func (c *child) read(cfg *Config) error {
	conn, err := (&net.Dialer{Timeout: cfg.handshake}).DialContext(c.ctx, "tcp", c.parent.String())
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	defer context.AfterFunc(c.ctx, func() { _ = conn.Close() })()
	f, err := c.handshake(conn, cfg)
	if err != nil {
		return err
	}
	for {
		m, err := f.read(c.e.releaseLimit())
		if err != nil {
			return err
		}
		r, ok := m.(*releaseMsg)
		if !ok {
			return Errorf(ErrProtocol, "%v from the parent", m.kind())
		}
		c.e.deliver(r)
	}
}

func (c *child) handshake(conn net.Conn, cfg *Config) (*framer, error) {
	_ = conn.SetDeadline(time.Now().Add(cfg.handshake))
	if err := keepalive.All(conn, cfg.PeerTimeout); err != nil {
		return nil, err
	}
	f := newFramer(conn)
	key := relayKey(c.e)
	hello := &helloMsg{rank: uint32(c.e.rank), size: uint32(c.e.size), secret: true, nonce: newNonce(), tls: kindOf(cfg.TLS)}
	hello.sign(key)
	if err := f.greet(hello); err != nil {
		return nil, err
	}
	if v, err := f.readPreface(); err != nil || v != protocolVersion {
		return nil, errors.Join(err, ErrVersion)
	}
	if err := f.prove(key, hello); err != nil {
		return nil, err
	}
	if err := f.upgrade(cfg.TLS, secure.End{Dialler: true, Key: key}); err != nil {
		return nil, err
	}
	c.e.mu.Lock()
	have := c.e.fences
	c.e.mu.Unlock()
	if err := f.write(&wantMsg{have}); err != nil {
		return nil, err
	}
	return f, conn.SetDeadline(time.Time{})
}

// close ends the connection to the parent.
func (c *child) close() {
	c.stop()
	c.done.Wait()
}
