package rendezvous

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/tagmatch/tagmatch/bootstrap/internal/space"
	"github.com/tagmatch/tagmatch/internal/keepalive"
	"github.com/tagmatch/tagmatch/internal/secure"
)

// Dialer joins a job as one of the ranks above 0. It is used once.
type Dialer struct {
	Config *Config
	Job    Job
	Secret Secret
	At     []string // where rank 0 serves, host:port, in the order to be tried
	From   string   // what says so, for error texts

	// trouble is why the last try has failed; nil: none has; "": rank 0 has let this rank in.
	trouble atomic.Pointer[string]
}

const (
	firstBackoff = 10 * time.Millisecond
	lastBackoff  = time.Second
	// takenFor is how long rank 0 may take to notice that another process of this rank has ended.
	takenFor = time.Second
)

// Join dials until rank 0 has accepted or rejected this rank, or ctx ends.
func (d *Dialer) Join(ctx context.Context) (*Endpoint, error) {
	defer d.Config.Vigil(d.Job.Rank, d.waits)()
	defer d.Config.Waits.Begin(d.waitsFor)()
	backoff := firstBackoff
	var why error       // of the last try that ctx did not cut short: it names the problem
	var taken time.Time // since when rank 0 says that this rank has joined; zero: it does not
	for {
		e, err := d.try(ctx)
		if err == nil {
			return e, nil
		}
		if why == nil || !space.Over(ctx) {
			why = err
		}
		d.notes(bare(err))
		if errors.Is(err, errRollGivenUp) {
			return nil, Errorf(ctx.Err(), "rank %d of %d waited at %s for all ranks to join: %s", d.Job.Rank, d.Job.Size, d.where(), bare(err))
		}
		if !errors.Is(err, errTaken) {
			taken = time.Time{}
		} else if taken.IsZero() {
			taken = time.Now()
		}
		if final(err) && (taken.IsZero() || time.Since(taken) > takenFor) {
			return nil, Errorf(err, "rank %d cannot join the job at %s: %s", d.Job.Rank, d.where(), bare(err))
		}
		d.Config.Logger.Debug("rendezvous: trying again", "address", d.where(), "error", err)
		if !space.Pause(ctx, backoff) {
			return nil, Errorf(ctx.Err(), "rank %d of %d could not join the job at %s (%v): %s%s",
				d.Job.Rank, d.Job.Size, d.where(), context.Cause(ctx), bare(why), d.hint(why))
		}
		backoff = min(2*backoff, lastBackoff)
	}
}

// notes keeps what waits tells of.
func (d *Dialer) notes(trouble string) { d.trouble.Store(&trouble) }

// waits says what this rank waits for, "" where it is rank 0 that knows.
func (d *Dialer) waits() string {
	if trouble := d.trouble.Load(); !Speaks(d.Job.Rank, d.Job.LocalRank) || trouble != nil && *trouble == "" {
		return ""
	}
	return d.waitsFor()
}

// waitsFor is the same, whoever knows more.
func (d *Dialer) waitsFor() string {
	trouble := d.trouble.Load()
	switch {
	case trouble == nil:
		return fmt.Sprintf("for an answer of rank 0 at %s", d.where())
	case *trouble == "":
		return fmt.Sprintf("for all ranks to join; rank 0 at %s knows which are missing", d.where())
	}
	return fmt.Sprintf("for rank 0 at %s: %s", d.where(), *trouble)
}

// where names the addresses of rank 0, and what says so.
func (d *Dialer) where() string { return d.From + "=" + strings.Join(d.At, ",") }

// final reports whether a retry is pointless.
func final(err error) bool {
	for _, cond := range []error{ErrSecret, ErrVersion, ErrRefused, ErrProtocol, ErrAborted, ErrConfig} {
		if errors.Is(err, cond) {
			return true
		}
	}
	return false
}

// hint is the most frequent reason for getting no answer.
func (d *Dialer) hint(why error) string {
	if errors.Is(why, errStarted) {
		return ""
	}
	if what := Remedy(why); what != "" {
		return what
	}
	s := "; still missing: rank 0 (is rank 0 running, and is that its address?)"
	if d.Secret.Bytes == nil {
		s += fmt.Sprintf(" Without a job secret rank 0 serves its own host only: for several hosts set %s or %s for all ranks, or %s at rank 0",
			EnvSecret, EnvSecretFile, EnvListen)
	}
	return s
}

// try dials the addresses of rank 0 one after the other. Where there are several, this rank may
// reach another process at one of them, whose nonsense is not the last word.
func (d *Dialer) try(ctx context.Context) (*Endpoint, error) {
	if len(d.At) == 1 {
		return d.tryAt(ctx, d.At[0])
	}
	var failures []string
	for _, at := range d.At {
		e, err := d.tryAt(ctx, at)
		if err == nil || errors.Is(err, errRollGivenUp) || Remedy(err) != "" || final(err) && !errors.Is(err, ErrProtocol) {
			return e, err
		}
		failures = append(failures, at+": "+bare(err))
	}
	return nil, errors.New(strings.Join(failures, "; "))
}

func (d *Dialer) tryAt(ctx context.Context, at string) (*Endpoint, error) {
	conn, err := d.connect(ctx, at)
	if err != nil {
		return nil, err
	}
	// The deadline also unblocks reads and writes when ctx ends.
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
	e, f, err := d.handshake(ctx, conn, at)
	if !stop() && err == nil {
		err = ctx.Err()
		if e.children != nil {
			e.children.close()
		}
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	conn.SetDeadline(time.Time{})
	l := &wireLink{f: f, done: make(chan struct{})}
	e.up = l
	go l.readLoop(e)
	e.startRelay(d.Config)
	return e, nil
}

// connect dials rank 0; if that is this host, also loopback: without a secret rank 0 listens only
// there, whatever its address is.
func (d *Dialer) connect(ctx context.Context, at string) (net.Conn, error) {
	nd := net.Dialer{Timeout: 5 * time.Second}
	if len(d.At) > 1 {
		nd.Timeout = time.Second // an address that swallows packets must not hold up the next one
	}
	conn, err := dialFrom(ctx, nd, d.Config.Locals, at)
	if err == nil && conn.LocalAddr().String() == conn.RemoteAddr().String() {
		conn.Close() // a port of the ephemeral range connected to itself: nobody listens there
		return nil, syscall.ECONNREFUSED
	}
	host, port, _ := net.SplitHostPort(at)
	if err == nil || ctx.Err() != nil || !isThisHost(ctx, host) {
		return conn, err
	}
	for _, ip := range []string{"127.0.0.1", "::1"} {
		if conn, err := nd.DialContext(ctx, "tcp", net.JoinHostPort(ip, port)); err == nil {
			return conn, nil
		}
	}
	return nil, err
}

func (d *Dialer) handshake(ctx context.Context, conn net.Conn, at string) (*Endpoint, *framer, error) {
	conn.SetDeadline(time.Now().Add(d.Config.handshake))
	if err := keepalive.All(conn, d.Config.PeerTimeout); err != nil {
		return nil, nil, err
	}
	f := newFramer(conn)
	children := d.relay(ctx, conn)
	e, err := d.greet(ctx, f, at, children)
	if err != nil && children != nil {
		children.close()
	}
	return e, f, err
}

// relay opens the port at which this rank passes RELEASE on, if it has ranks to pass it on to.
// Where that fails they get it from rank 0.
func (d *Dialer) relay(ctx context.Context, conn net.Conn) *relay {
	if t := (tree{d.Job.Size, d.Config.fanOut}); !t.passes(d.Job.Rank) {
		return nil
	}
	r, err := newRelay(ctx, &d.Job, ipOf(conn.LocalAddr()), d.Config)
	if err != nil {
		d.Config.Logger.Warn("rendezvous: other ranks will ask rank 0 for what this one cannot pass on", "error", err)
		return nil
	}
	return r
}

// greet exchanges HELLO and WELCOME.
func (d *Dialer) greet(ctx context.Context, f *framer, at string, children *relay) (*Endpoint, error) {
	conn := f.conn
	hello := &helloMsg{rank: uint32(d.Job.Rank), size: uint32(d.Job.Size), secret: d.Secret.Bytes != nil, nonce: newNonce(), epoch: d.Job.Epoch,
		relay: children.port(), tls: kindOf(d.Config.TLS)}
	hello.sign(d.Secret.Bytes)
	if err := f.greet(hello); err != nil {
		return nil, err
	}
	if err := d.readPreface(f); err != nil {
		return nil, err
	}
	if err := d.prove(f, hello); err != nil {
		return nil, err
	}
	host, _, _ := net.SplitHostPort(at)
	if err := f.upgrade(d.Config.TLS, secure.End{Dialler: true, Key: d.Secret.Bytes, Name: host}); err != nil {
		return nil, err
	}
	d.notes("")
	conn.SetDeadline(time.Time{}) // the other ranks may take long to join; ctx bounds that
	if ctx.Err() != nil {         // before the deadline was reset
		conn.SetDeadline(time.Unix(1, 0))
	}
	d.Config.Logger.Debug("rendezvous: waiting for the other ranks")
	w, err := expect[*welcomeMsg](f, maxHandshake)
	if err != nil && ctx.Err() != nil {
		err = d.giveUp(ctx, f, err)
	}
	if err != nil {
		return nil, err
	}
	e, err := d.welcome(w, ipOf(conn.LocalAddr()))
	if err != nil {
		return nil, err
	}
	e.children = children
	if w.parent.IsValid() {
		e.parent = newChild(e, w.parent)
	}
	return e, nil
}

// errRollGivenUp: this rank was accepted and waited in vain for the others.
var errRollGivenUp = errors.New("bootstrap: the roll of ranks is not complete")

// giveUp asks rank 0 which ranks are missing. err ended the wait for WELCOME when ctx did.
func (d *Dialer) giveUp(ctx context.Context, f *framer, err error) error {
	m := &giveUpMsg{giveUpAlone, cut(context.Cause(ctx).Error(), maxReason)}
	if _, ok := errors.AsType[*JoinTimeout](context.Cause(ctx)); ok {
		m.seq = giveUpForAll
	}
	if f.conn.SetDeadline(time.Now().Add(giveUpWait)) != nil || f.write(m) != nil {
		return err
	}
	switch _, answer := expect[*welcomeMsg](f, maxHandshake); {
	case answer == nil:
		return Errorf(errRollGivenUp, "the last of them came when this rank had given up")
	case errors.Is(answer, ErrRefused):
		return Errorf(errRollGivenUp, "%s", bare(answer))
	}
	return err
}

func (d *Dialer) readPreface(f *framer) error {
	version, err := f.readPreface()
	if errors.Is(err, ErrProtocol) {
		return fmt.Errorf("%w: another program listens there (with torchrun that may be its own store: set TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 for torchrun)", err)
	}
	if err != nil {
		return err
	}
	if version != protocolVersion {
		if _, err := expect[*challengeMsg](f, maxHandshake); errors.Is(err, ErrVersion) {
			return err // the error came from rank 0
		}
		return Errorf(ErrVersion, "rank 0 speaks version %d of the rendezvous protocol, this rank version %d: run the same build of the program on all ranks", version, protocolVersion)
	}
	return nil
}

// prove proves to rank 0 that this rank knows the secret, and then checks rank 0's own proof.
func (d *Dialer) prove(f *framer, hello *helloMsg) error {
	err := f.prove(d.Secret.Bytes, hello)
	if err == errImpostor {
		_ = f.write(wrongSecret(hello.rank)) // for the log of rank 0, which may be an impostor
	}
	if errors.Is(err, ErrSecret) && d.Secret.Bytes != nil {
		return Errorf(ErrSecret, "the job secret of this rank (from %s) is not that of rank 0: give all ranks the same %s or %s, if it is no other job that serves there: %s",
			d.Secret.Origin, EnvSecret, EnvSecretFile, bare(err))
	}
	return err
}

func (d *Dialer) welcome(w *welcomeMsg, ip netip.Addr) (*Endpoint, error) {
	sec := d.Secret
	if (len(w.secret) == SecretSize) != (sec.Bytes == nil) {
		return nil, Errorf(ErrProtocol, "rank 0 handed out a secret of %d bytes", len(w.secret))
	}
	if sec.Bytes == nil {
		sec = Secret{w.secret, HandedOut, true}
	}
	if ip.IsLoopback() && w.root.IsValid() {
		ip = w.root // this rank is on rank 0's host, and some rank is not
	}
	e := d.Job.endpoint(sec, ip)
	e.deliver(w) // it has the job's id
	return e, nil
}

// endpoint returns this rank's endpoint, not joined yet.
func (j *Job) endpoint(sec Secret, ip netip.Addr) *Endpoint {
	return newEndpoint(j.Rank, j.Size, Info{LocalRank: j.LocalRank, LocalSize: j.LocalSize, LocalIP: ip, Launcher: j.Launcher,
		Secret: sec.Bytes, SecretOrigin: sec.Origin, SecretExposed: sec.Exposed})
}

// wireLink is the uplink of a rank that has dialed.
type wireLink struct {
	f    *framer
	done chan struct{} // closed when the reader has ended
}

func (l *wireLink) send(m message) error { return l.f.write(m) }

func (l *wireLink) fenced() {}

func (l *wireLink) readLoop(e *Endpoint) {
	defer close(l.done)
	for {
		m, err := l.f.read(e.releaseLimit())
		if err == nil {
			e.deliver(m)
			continue
		}
		if errors.Is(err, ErrProtocol) {
			e.deafen()
			e.fail(err)
		} else {
			reason := "was lost: " + lossReason(err)
			e.deliver(&goneMsg{0, reason})
			e.deafen()
			e.awaitRelease()
			e.fail(&RankError{0, reason})
		}
		return
	}
}

// releaseLimit bounds what rank 0 may send at once.
func (e *Endpoint) releaseLimit() int {
	return int(min(int64(maxFromRoot), int64(e.size)*2*maxFromRank+maxHandshake))
}

// close sends BYE and waits shortly for rank 0 to close the connection, so that nothing written is
// discarded.
func (l *wireLink) close(finished bool) error {
	err := l.f.write(&byeMsg{finished})
	if tc, ok := l.f.conn.(*net.TCPConn); ok && err == nil {
		err = tc.CloseWrite()
	}
	l.f.conn.SetReadDeadline(time.Now().Add(time.Second))
	<-l.done
	l.f.conn.Close()
	if err != nil && (errors.Is(err, net.ErrClosed) || errors.Is(err, io.EOF) || isReset(err) || isChanged(err)) {
		err = nil // the connection has ended before, and that was reported: no BYE is needed
	}
	return err
}

// dialFrom dials from the first of the addresses from which that is possible; locals nil: from any.
// Loopback is only dialed from loopback, and nothing else is.
func dialFrom(ctx context.Context, nd net.Dialer, locals []netip.Addr, at string) (conn net.Conn, err error) {
	if locals == nil {
		return nd.DialContext(ctx, "tcp", at)
	}
	host, _, _ := net.SplitHostPort(at)
	ip, _ := netip.ParseAddr(host) // or a name, which is of no loopback
	tried := false
	for _, a := range locals {
		if a.IsLoopback() != ip.IsLoopback() {
			continue
		}
		tried = true
		nd.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(a, 0))
		if conn, err = nd.DialContext(ctx, "tcp", at); err == nil {
			return conn, nil
		}
	}
	if !tried {
		nd.LocalAddr = nil
		return nd.DialContext(ctx, "tcp", at)
	}
	return nil, err
}

// isThisHost reports whether host is this host.
func isThisHost(ctx context.Context, host string) bool {
	ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return false
	}
	own, _ := net.InterfaceAddrs()
	for _, ip := range ips {
		if ip.IsLoopback() {
			return true
		}
		for _, a := range own {
			if n, ok := a.(*net.IPNet); ok && n.IP.Equal(ip.AsSlice()) {
				return true
			}
		}
	}
	return false
}

func isReset(err error) bool {
	return errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ENOTCONN)
}
