package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"github.com/tagmatch/tagmatch/internal/keepalive"
)

// store serves a hub on a listener. One goroutine accepts; each connection has one that reads and,
// once its rank has joined, one that writes.
type store struct {
	hub    *hub
	ln     net.Listener
	opt    *Options
	epoch  string
	secret []byte // empty: none was given
	made   []byte // the secret sent out instead
	slots  chan struct{}
	wg     sync.WaitGroup
	ctx    context.Context // ends when the store closes
	stop   context.CancelFunc
	short  chan string // gets hub.absent, once, when no descriptor is left for the missing ranks

	mu    sync.Mutex // guards conns
	conns map[net.Conn]struct{}
}

func newStore(h *hub, ln net.Listener, opt *Options, epoch string, secret jobSecret) *store {
	s := &store{hub: h, ln: ln, opt: opt, epoch: epoch, short: make(chan string, 1), conns: map[net.Conn]struct{}{}}
	if secret.origin == handedOut {
		s.made = secret.bytes
	} else {
		s.secret = secret.bytes
	}
	// The number of unauthenticated connections is bounded, so that a flood of them costs little; a
	// rank that gets no slot dials again.
	s.slots = make(chan struct{}, h.size+16)
	s.ctx, s.stop = context.WithCancel(context.Background())
	s.wg.Add(1)
	go s.accept()
	return s
}

func (s *store) accept() {
	defer s.wg.Done()
	var lack shortage
	for s.ctx.Err() == nil {
		began := time.Now()
		conn, err := s.ln.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		s.hub.accepts(err)
		if lack.lasts(s, err, time.Since(began)) {
			select {
			case s.short <- s.hub.absent():
			default: // said already
			}
		}
		if err != nil {
			s.opt.Logger.Warn("rendezvous cannot accept", "error", err)
			sleep(s.ctx, acceptAgain)
			continue
		}
		if !s.take(conn) {
			conn.Close()
		}
	}
}

// take starts serving conn if the store is open and has a slot.
func (s *store) take(conn net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conns == nil {
		return false
	}
	select {
	case s.slots <- struct{}{}:
	default:
		s.opt.Logger.Warn("too many connections that have not proved who they are", "from", conn.RemoteAddr())
		return false
	}
	s.conns[conn] = struct{}{}
	s.wg.Add(1)
	go s.serve(conn)
	return true
}

func (s *store) serve(conn net.Conn) {
	defer s.wg.Done()
	defer s.forget(conn)
	m, rank, err := s.handshake(conn)
	<-s.slots
	if err != nil {
		s.opt.Logger.Warn("rendezvous turned a connection away", "from", conn.RemoteAddr(), "error", err)
		return
	}
	m.read(s.ctx, rank, s.hub)
	m.finish()
}

func (s *store) forget(conn net.Conn) {
	conn.Close()
	s.mu.Lock()
	delete(s.conns, conn) // a no-op once the store closes
	s.mu.Unlock()
}

// handshake authenticates a dialing rank and adds it to the hub.
func (s *store) handshake(conn net.Conn) (*remote, int, error) {
	conn.SetDeadline(time.Now().Add(s.opt.handshake))
	if err := keepalive.All(conn, s.opt.PeerTimeout); err != nil {
		return nil, 0, err
	}
	f := newFramer(conn)
	version, err := f.readPreface()
	if err != nil {
		return nil, 0, s.note(f, err)
	}
	if err := f.writePreface(); err != nil {
		return nil, 0, s.note(f, err)
	}
	if version != protocolVersion {
		return nil, 0, s.reject(f, &rejectMsg{rejectVersion, fmt.Sprintf(
			"rank 0 speaks version %d of the rendezvous protocol and the dialing rank version %d: run the same build of the program on all ranks",
			protocolVersion, version)})
	}
	hello, err := expect[*helloMsg](f, maxHandshake)
	if err != nil {
		return nil, 0, s.note(f, err)
	}
	if r := s.checkHello(hello); r != nil {
		if s.hub.started() { // it may be of the next job
			r.code = rejectStarted
		}
		return nil, 0, s.reject(f, r)
	}
	if err := s.authenticate(f, hello); err != nil {
		return nil, 0, err
	}
	conn.SetReadDeadline(time.Time{})
	m := newRemote(f, s.made, hello.relay)
	go m.writeLoop() // ends by finish
	if r := s.hub.join(int(hello.rank), m); r != nil {
		m.deliver(r)
		m.finish()
		drain(f)
		return nil, 0, errors.New(r.reason)
	}
	s.opt.Logger.Debug("rendezvous: rank has joined", "rank", hello.rank, "from", conn.RemoteAddr())
	return m, int(hello.rank), nil
}

func (s *store) checkHello(h *helloMsg) *rejectMsg {
	switch {
	case int64(h.size) != int64(s.hub.size):
		return &rejectMsg{rejectSize, fmt.Sprintf("WORLD_SIZE is %d at rank 0 but %d at rank %d: it must be the same for all", s.hub.size, h.size, h.rank)}
	case int64(h.rank) >= int64(s.hub.size):
		return &rejectMsg{rejectRank, fmt.Sprintf("RANK is %d: it must be below WORLD_SIZE, which is %d", h.rank, s.hub.size)}
	case h.epoch != s.epoch:
		return &rejectMsg{rejectEpoch, fmt.Sprintf("rank 0 belongs to run %q and rank %d to %q (TORCHELASTIC_RUN_ID/TORCHELASTIC_RESTART_COUNT): a rank of another run, or of before a restart",
			s.epoch, h.rank, h.epoch)}
	case h.secret && s.secret == nil:
		return &rejectMsg{rejectSecret, fmt.Sprintf("rank %d has a job secret, rank 0 has none: give all ranks the same %s or %s, or none of them", h.rank, EnvSecret, EnvSecretFile)}
	case !h.secret && s.secret != nil:
		return &rejectMsg{rejectSecret, fmt.Sprintf("rank 0 has a job secret, rank %d has none: give all ranks the same %s or %s", h.rank, EnvSecret, EnvSecretFile)}
	}
	return nil
}

// authenticate proves rank 0's knowledge of the secret to the rank, and checks the rank's proof.
// All messages depend on both nonces.
func (s *store) authenticate(f *framer, hello *helloMsg) error {
	c := &challengeMsg{secret: s.secret != nil, nonce: newNonce()}
	ses := newSession(s.secret, hello, c)
	c.mac = ses.mac(labelRoot)
	if err := f.write(c); err != nil {
		return s.note(f, err)
	}
	p, err := expect[*proofMsg](f, maxHandshake)
	if err != nil {
		return s.note(f, err)
	}
	if !ses.check(labelRank, p.mac) {
		return s.reject(f, wrongSecret(hello.rank))
	}
	ses.sealRoot(f)
	return nil
}

func wrongSecret(rank uint32) *rejectMsg {
	return &rejectMsg{rejectSecret, fmt.Sprintf("the job secret of rank %d is not that of rank 0: give all ranks the same %s or %s", rank, EnvSecret, EnvSecretFile)}
}

// reject refuses a dialing process, with the reason.
func (s *store) reject(f *framer, r *rejectMsg) error {
	s.hub.refuse(f.conn.RemoteAddr().String(), r)
	_ = f.write(r)
	drain(f)
	return errors.New(r.reason)
}

// note records why the other side has not gone on with its greeting, for the error of ranks that
// wait in vain.
func (s *store) note(f *framer, err error) error {
	from := f.conn.RemoteAddr().String()
	if r, ok := errors.AsType[*rejection](err); ok {
		s.hub.refuse(from, &rejectMsg{rejectRank, r.reason})
		return err
	}
	why := "the connection ended before its greeting was complete"
	if errors.Is(err, ErrProtocol) {
		why = "it does not greet as a rank does"
	}
	s.hub.noteStranger(from, why)
	return err
}

// drain waits shortly for the peer to close: closing a connection with unread bytes would discard
// what was just written.
func drain(f *framer) {
	f.conn.SetReadDeadline(time.Now().Add(time.Second))
	_, _ = io.CopyN(io.Discard, f.r, 64<<10)
}

// close ends the store. Queued messages to ranks are written before.
func (s *store) close() {
	s.stop()
	s.ln.Close()
	s.mu.Lock()
	for c := range s.conns {
		c.SetReadDeadline(time.Unix(1, 0)) // readers stop, writers finish
	}
	open := s.conns
	s.conns = nil
	s.mu.Unlock()
	t := time.AfterFunc(2*time.Second, func() { // for ranks that do not read
		for c := range open {
			c.Close()
		}
	})
	defer t.Stop()
	s.wg.Wait()
}

// remote is the hub's connection to a rank that has dialed.
type remote struct {
	f       *framer
	made    []byte
	port    uint16 // of relay
	wake    chan struct{}
	written chan struct{} // closed when writeLoop has ended

	mu    sync.Mutex // guards the fields below
	queue []message
	done  bool
}

func newRemote(f *framer, made []byte, relay uint16) *remote {
	return &remote{f: f, made: made, port: relay, wake: make(chan struct{}, 1), written: make(chan struct{})}
}

func (m *remote) where() string     { return m.f.conn.RemoteAddr().String() }
func (m *remote) local() netip.Addr { return ipOf(m.f.conn.LocalAddr()) }

func (m *remote) relay() netip.AddrPort {
	if m.port == 0 {
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(ipOf(m.f.conn.RemoteAddr()), m.port)
}

func (m *remote) deliver(msg message) {
	switch v := msg.(type) {
	case *releaseMsg:
		// No race: the hub's lock is held, and v is either new or encoded already.
		if v.encoded == nil {
			v.encoded = v.append(nil)
		}
	case *welcomeMsg:
		own := *v
		own.secret = m.made
		msg = &own
	}
	m.mu.Lock()
	m.queue = append(m.queue, msg)
	m.mu.Unlock()
	m.kick()
}

// finish ends writeLoop after it has written all queued messages.
func (m *remote) finish() {
	m.mu.Lock()
	m.done = true
	m.mu.Unlock()
	m.kick()
	<-m.written
}

func (m *remote) kick() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

func (m *remote) writeLoop() {
	defer close(m.written)
	var err error
	for range m.wake {
		m.mu.Lock()
		queue, done := m.queue, m.done
		m.queue = nil
		m.mu.Unlock()
		for _, msg := range queue {
			if mark, ok := msg.(flushMark); ok {
				close(mark)
			} else if err == nil {
				err = m.f.write(msg)
			}
		}
		if done {
			return
		}
	}
}

// read handles the messages of a rank until it leaves, or until the store closes: that ends ctx and
// is no loss of the rank.
func (m *remote) read(ctx context.Context, rank int, h *hub) {
	for {
		msg, err := m.f.read(maxFromRank)
		if err != nil && ctx.Err() != nil {
			return
		}
		if err != nil {
			h.lost(rank, "was lost: "+lossReason(err))
			return
		}
		if h.leave(rank, msg) {
			return
		}
		if !h.handle(rank, msg) {
			h.lost(rank, fmt.Sprintf("broke the rendezvous protocol: %v out of turn", msg.kind()))
			return
		}
		if msg.kind() == kindBye {
			return
		}
	}
}

// lossReason is the text for the end of a connection.
func lossReason(err error) string {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return "its process ended, or its connection was closed without a goodbye"
	}
	if errors.Is(err, syscall.ETIMEDOUT) {
		return "its host, or the way to it, is silent: " + err.Error()
	}
	return err.Error()
}

func ipOf(a net.Addr) netip.Addr {
	ap, err := netip.ParseAddrPort(a.String())
	if err != nil {
		return netip.Addr{}
	}
	return ap.Addr().Unmap()
}
