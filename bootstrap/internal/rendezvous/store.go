package rendezvous

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

	"github.com/tagmatch/tagmatch/internal/door"
	"github.com/tagmatch/tagmatch/internal/secure"
)

// store serves a hub on a listener. A door accepts; each connection has a goroutine that
// reads and, once its rank has joined, one that writes.
type store struct {
	hub    *hub
	ln     net.Listener
	cfg    *Config
	epoch  string
	secret []byte // empty: none was given
	made   []byte // the secret sent out instead
	door   *door.Door
	nonces door.Nonces     // of HELLO
	ctx    context.Context // ends when the store closes
	stop   context.CancelFunc
	guests guests
}

func newStore(h *hub, ln net.Listener, cfg *Config, epoch string, secret Secret) *store {
	s := &store{hub: h, ln: ln, cfg: cfg, epoch: epoch}
	if secret.Origin == HandedOut {
		s.made = secret.Bytes
	} else {
		s.secret = secret.Bytes
	}
	s.ctx, s.stop = context.WithCancel(context.Background())
	at := door.Config{Listener: ln, Greeting: mostGreeting, Serve: s.serve, Strangers: maxStrangers + min(h.size, maxBurst),
		Failed: s.failed, Warn: s.warn}
	if s.secret != nil {
		at.Known = knownBy(s.vouch)
	}
	s.door = door.Open(at)
	h.countBy(s.door.Turned)
	return s
}

// Without a secret nothing tells ranks from strangers before they have joined. So a rendezvous has
// room for some more, as all ranks may come at once.
const (
	maxStrangers = 64
	maxBurst     = 192
)

// failed records that no connection can be accepted.
func (s *store) failed(err error) (net.Conn, error) {
	s.hub.accepts(err)
	s.cfg.Logger.Warn("rendezvous cannot accept", "error", err)
	return nil, err
}

func (s *store) warn(t door.Turned) {
	s.cfg.Logger.Warn("rendezvous turned connections away", "count", t.N, "last", t.From, "error", t.Err)
}

// vouch returns nil for the HELLO of a rank that has not come before.
func (s *store) vouch(hello *helloMsg) error { return hello.vouch(s.secret, &s.nonces) }

func (s *store) serve(v *door.Visitor) error {
	s.hub.accepts(nil)
	if !s.guests.keep(v.Conn) {
		return net.ErrClosed
	}
	defer s.guests.forget(v.Conn)
	m, rank, err := s.handshake(v)
	if err != nil {
		if v.Passed() {
			s.cfg.Logger.Warn("rendezvous refused a rank", "from", v.RemoteAddr(), "error", err)
		}
		return err
	}
	m.read(s.ctx, rank, s.hub)
	m.finish()
	return nil
}

// handshake authenticates a dialing rank and adds it to the hub.
func (s *store) handshake(v *door.Visitor) (*remote, int, error) {
	conn := v.Conn
	f, hello, version, err := greeted(conn, s.cfg)
	switch {
	case err != nil:
		return nil, 0, s.note(f, err)
	case hello == nil:
		return nil, 0, s.reject(f, &rejectMsg{rejectVersion, fmt.Sprintf(
			"rank 0 speaks version %d of the rendezvous protocol and the dialing rank version %d: run the same build of the program on all ranks",
			protocolVersion, version)})
	}
	if err := s.pass(v, f, hello); err != nil {
		return nil, 0, err
	}
	conn.SetDeadline(time.Now().Add(s.cfg.handshake))
	if err := s.authenticate(v, f, hello); err != nil {
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
	s.cfg.Logger.Debug("rendezvous: rank has joined", "rank", hello.rank, "from", conn.RemoteAddr())
	return m, int(hello.rank), nil
}

// pass tells ranks from strangers where there is a secret. Who does not know it hears that, and
// nothing of the job.
func (s *store) pass(v *door.Visitor, f *framer, hello *helloMsg) error {
	switch {
	case s.secret != nil && !hello.secret:
		return s.reject(f, &rejectMsg{rejectSecret, fmt.Sprintf("rank 0 has a job secret, rank %d has none: give all ranks the same %s or %s; "+
			"a program that a rank starts does not get it: %s", hello.rank, EnvSecret, EnvSecretFile, alone)})
	case s.secret == nil && hello.secret:
		return s.reject(f, s.ofNextJob(&rejectMsg{rejectSecret, fmt.Sprintf("rank %d has a job secret, rank 0 has none: give all ranks the same %s or %s, or none of them",
			hello.rank, EnvSecret, EnvSecretFile)}))
	case s.secret == nil:
		return nil
	}
	switch err := v.Pass(func() error { return s.vouch(hello) }); err {
	case nil:
		return nil
	case ErrSecret:
		return s.reject(f, wrongSecret(hello.rank))
	default:
		return s.note(f, err)
	}
}

// authenticate has the rank prove that it knows the secret, checks that it can be one of this job,
// proves the same to it, and begins TLS. Without a secret it passes by answering at all.
func (s *store) authenticate(v *door.Visitor, f *framer, hello *helloMsg) error {
	proofs, err := f.challenge(s.secret, hello)
	switch {
	case err == ErrSecret:
		return s.reject(f, wrongSecret(hello.rank))
	case err != nil:
		return s.note(f, err)
	}
	if r := s.checkHello(hello); r != nil {
		return s.reject(f, s.ofNextJob(r))
	}
	if err := f.accept(proofs); err != nil {
		return s.note(f, err)
	}
	if err := f.upgrade(s.cfg.TLS, secure.End{Key: s.secret}); err != nil {
		s.hub.refuse(f.conn.RemoteAddr().String(), &rejectMsg{rejectTLS, fmt.Sprintf("rank %d: %s", hello.rank, bare(err))})
		return err
	}
	return v.Pass(func() error { return nil })
}

func (s *store) checkHello(h *helloMsg) *rejectMsg {
	own := kindOf(s.cfg.TLS)
	switch {
	case int64(h.size) != int64(s.hub.size):
		return &rejectMsg{rejectSize, fmt.Sprintf("WORLD_SIZE is %d at rank 0 but %d at rank %d: it must be the same for all", s.hub.size, h.size, h.rank)}
	case int64(h.rank) >= int64(s.hub.size):
		return &rejectMsg{rejectRank, fmt.Sprintf("RANK is %d: it must be below WORLD_SIZE, which is %d", h.rank, s.hub.size)}
	case h.epoch != s.epoch:
		return &rejectMsg{rejectEpoch, fmt.Sprintf("rank 0 belongs to run %q and rank %d to %q (TORCHELASTIC_RUN_ID/TORCHELASTIC_RESTART_COUNT): a rank of another run, or of before a restart",
			s.epoch, h.rank, h.epoch)}
	case h.tls != own:
		return &rejectMsg{rejectTLS, fmt.Sprintf("rank %d has TLS %v, rank 0 %v: %s must be of one kind on all ranks", h.rank, h.tls, own, EnvTLS)}
	}
	return nil
}

// ofNextJob has who does not fit a job that has all of its ranks try again: it may be of the next.
func (s *store) ofNextJob(r *rejectMsg) *rejectMsg {
	if s.hub.started() {
		r.code = rejectStarted
	}
	return r
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
		s.hub.refuse(from, &rejectMsg{rejectRank, r.text})
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
	s.door.Close()
	s.guests.close(2*time.Second, s.door.Wait)
}

// remote is the hub's connection to a rank that has dialed.
type remote struct {
	f       *framer
	made    []byte
	port    uint16 // of relay
	wake    chan struct{}
	written chan struct{} // closed when writeLoop has ended

	mu      sync.Mutex // guards the fields below
	queue   []message
	replies int // what those in queue cost
	done    bool
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
	if v, ok := msg.(*welcomeMsg); ok {
		own := *v
		own.secret = m.made
		msg = &own
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if r, ok := msg.(*replyMsg); ok {
		if m.replies += r.cost(); m.replies > mostReplies {
			m.replies -= r.cost()
			return
		}
	}
	m.queue = append(m.queue, msg)
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
		m.queue, m.replies = nil, 0
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
		switch msg.kind() {
		case kindBye:
			return
		case kindAsk:
			rest(time.Duration(h.size)*restPerRank, ctx.Done())
		}
	}
}

// lossReason is the text for the end of a connection.
func lossReason(err error) string {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return WhyEnded
	}
	if errors.Is(err, syscall.ETIMEDOUT) {
		return "its host, or the way to it, is silent: " + err.Error()
	}
	return bare(err)
}

func ipOf(a net.Addr) netip.Addr {
	ap, err := netip.ParseAddrPort(a.String())
	if err != nil {
		return netip.Addr{}
	}
	return ap.Addr().Unmap()
}
