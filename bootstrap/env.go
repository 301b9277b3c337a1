package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"syscall"
	"time"

	"github.com/tagmatch/tagmatch/internal/launch/link"
)

// envPlan joins a job whose environment tells where rank 0 serves the rendezvous.
type envPlan struct {
	opt    *Options
	job    jobVars
	secret jobSecret
	from   string // the variables that tell it
}

func (p *envPlan) found() Found {
	f := Found{Launcher: p.job.launcher, Rank: p.job.rank, Size: p.job.size, LocalRank: p.job.localRank, LocalSize: p.job.localSize,
		Rendezvous: p.job.address(), RendezvousOrigin: p.from, SecretOrigin: p.secret.origin}
	if p.secret.bytes == nil {
		f.SecretOrigin = handedOut
	}
	return f
}

func (p *envPlan) join(ctx context.Context) (Bootstrap, error) {
	l := link.Open(p.opt.Getenv)
	if l == nil {
		e, err := p.endpoint(ctx)
		if err != nil {
			return nil, err
		}
		return e, nil
	}
	gone, lose := context.WithCancel(context.Background())
	go func() { // ends with the launcher or by Close
		l.Wait()
		lose()
	}()
	ctx, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	defer context.AfterFunc(gone, func() { giveUp(errLauncherGone) })()
	l.Say(link.Joining)
	e, err := p.endpoint(ctx)
	if err != nil {
		_ = l.Close()
		return nil, err
	}
	l.Say(link.Joined)
	e.launched = l
	context.AfterFunc(gone, e.orphaned)
	return e, nil
}

var errLauncherGone = errors.New("the launcher is gone")

// orphaned ends the job when its launcher is gone, which could not end this process any more.
func (e *endpoint) orphaned() {
	e.mu.Lock()
	over := e.stateLocked() != nil
	e.mu.Unlock()
	if !over {
		e.abort(&abortMsg{rank: -1, code: 1, reason: errLauncherGone.Error()})
	}
}

func (p *envPlan) endpoint(ctx context.Context) (*endpoint, error) {
	if p.job.rank != 0 {
		d := dialer{opt: p.opt, job: p.job, secret: p.secret, at: []string{p.job.address()}, from: p.from}
		return d.join(ctx)
	}
	if p.job.size == 1 && p.opt.Getenv(EnvRendezvousFD) == "" {
		return p.job.alone(p.secret), nil
	}
	ln, err := p.listen(ctx)
	if err != nil {
		return nil, err
	}
	sec := p.secret
	if sec.bytes == nil {
		sec = madeSecret(handedOut)
		p.opt.Logger.Warn("no job secret was given: rank 0 hands one to whoever completes the roll of ranks", "listen", ln.Addr())
	}
	return p.job.serve(ctx, p.opt, ln, sec)
}

// alone is a job of one rank, which needs no listener.
func (j *jobVars) alone(sec jobSecret) *endpoint {
	if sec.bytes == nil {
		sec = madeSecret("made by this process, a job of one rank")
	}
	h := newHub(1, fanOut)
	e := j.endpoint(sec, loopback)
	e.up = &localLink{h, 0}
	h.join(0, localMember{e})
	return e
}

// serve runs the store until all ranks have joined.
func (j *jobVars) serve(ctx context.Context, opt *Options, ln net.Listener, sec jobSecret) (*endpoint, error) {
	h := newHub(j.size, opt.fanOut)
	e := j.endpoint(sec, loopback)
	m := &rootMember{localMember: localMember{e}}
	h.join(0, m) // before another process can dial and claim rank 0
	root := &rootLink{localLink{h, 0}, newStore(h, ln, opt, j.epoch, sec), opt.Linger}
	e.up = root
	e.vigil = func() func() { return opt.vigil(0, h.awaited) }
	defer opt.vigil(0, func() string { return fmt.Sprintf("at %s for all ranks to join; %s", ln.Addr(), h.absent()) })()
	select {
	case <-h.full:
		if m.root.IsValid() {
			e.info.LocalIP = m.root
		}
		return e, nil
	case <-e.broken: // the timeout of another rank ended first
		root.store.close()
		return nil, e.err
	case absent := <-root.store.short:
		h.fail("gave up waiting for all ranks to join; " + absent)
		root.store.close()
		return nil, errorf(syscall.EMFILE, "rank 0 waited at %s for all ranks to join; %s", ln.Addr(), absent)
	case <-ctx.Done():
		err := errorf(ctx.Err(), "rank 0 waited at %s for all ranks to join (%v); %s", ln.Addr(), context.Cause(ctx), h.absent())
		h.fail(fmt.Sprintf("gave up waiting for all ranks to join (%v); %s", context.Cause(ctx), h.absent()))
		root.store.close()
		return nil, err
	}
}

// rootMember is rank 0 in its own hub. Like the others it learns its address from WELCOME.
type rootMember struct {
	localMember
	root netip.Addr // written before full is closed
}

func (m *rootMember) deliver(msg message) {
	if w, ok := msg.(*welcomeMsg); ok {
		m.root = w.root
	}
	m.localMember.deliver(msg)
}

// rootLink is the uplink of rank 0.
type rootLink struct {
	localLink
	store  *store
	linger time.Duration
}

// send waits until an Abort was written, as the caller may exit next.
func (l *rootLink) send(m message) error {
	err := l.localLink.send(m)
	if m.kind() == kindAbort {
		l.hub.flush()
	}
	return err
}

// fenced waits until those have the answer that get it from here: the fence then completes for all,
// even if this process dies at once, as the others get it from these.
func (l *rootLink) fenced() { l.hub.flush() }

// close waits for the others, so that their last messages are answered, and tells the remaining
// ones.
func (l *rootLink) close() error {
	_ = l.localLink.close()
	t := time.NewTimer(l.linger)
	defer t.Stop()
	select {
	case <-l.hub.empty:
	case <-t.C:
		l.hub.fail(ReasonLeft)
	}
	l.store.close()
	return nil
}

// listen opens the rendezvous, or takes over the socket that the local launcher opened.
func (p *envPlan) listen(ctx context.Context) (net.Listener, error) {
	if s := p.opt.Getenv(EnvRendezvousFD); s != "" {
		fd, err := strconv.Atoi(s)
		if err != nil || fd < 0 {
			return nil, configErrorf("%s is %q, which is not a file descriptor: unset it; only `tagmatch run` sets it", EnvRendezvousFD, s)
		}
		ln, err := inheritListener(fd)
		if what := remedy(err); what != "" {
			return nil, errorf(err, "rank 0 cannot take over its listener (%s=%d): %v%s", EnvRendezvousFD, fd, err, what)
		}
		if err != nil {
			return nil, configErrorf("%s=%d: %v: unset it; only `tagmatch run` sets it, for the process that it starts", EnvRendezvousFD, fd, err)
		}
		// Children of this process must not see it.
		if err := p.opt.Unsetenv(EnvRendezvousFD); err != nil {
			ln.Close()
			return nil, configErrorf("%s cannot be unset: %v", EnvRendezvousFD, err)
		}
		return ln, nil
	}
	host, err := p.listenHost(ctx)
	if err != nil {
		return nil, err
	}
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(host, p.job.port))
	if err == nil {
		return ln, nil
	}
	if !errors.Is(err, syscall.EADDRINUSE) {
		return nil, errorf(err, "rank 0 cannot listen on %s (from %s or %s): %v%s", net.JoinHostPort(host, p.job.port), p.from, EnvListen, err, remedy(err))
	}
	return nil, errorf(err, "port %s (%s) is in use on this host: give the job another by %s; `tagmatch run --hosts` takes another each time; "+
		"a program that rank 0 starts inherits the port: give it %s=singleton, or start it by `tagmatch run`", p.job.port, p.from, EnvMasterPort, EnvBootstrap)
}

// listenHost decides from where the rendezvous can be reached.
func (p *envPlan) listenHost(ctx context.Context) (string, error) {
	host := p.opt.Listen
	if host == "" {
		host = p.opt.Getenv(EnvListen)
	}
	if host != "" {
		if _, err := netip.ParseAddr(host); err != nil {
			return "", configErrorf("%s is %q: give an IP address of this host, or 0.0.0.0 or :: for all; the port is %s", EnvListen, host, EnvMasterPort)
		}
		return host, nil
	}
	ips, _ := net.DefaultResolver.LookupNetIP(ctx, "ip", p.job.host) // a name may not resolve yet
	return p.listenAt(ips)
}

// listenAt is listenHost for a host with these addresses. Debian gives a host's own name the
// address 127.0.1.1 on that host: where other hosts may have ranks, loopback by a name says
// nothing.
func (p *envPlan) listenAt(ips []netip.Addr) (string, error) {
	_, err := netip.ParseAddr(p.job.host)
	literal := err == nil || p.job.host == "localhost"
	n := p.job.localSize
	switch {
	case allLoopback(ips) && (literal || n == p.job.size):
		return ips[0].Unmap().String(), nil
	case p.secret.bytes != nil:
		return "", nil
	case n > 0 && n < p.job.size:
		return "", configErrorf("no job secret, but only %d of %d ranks are on this host: set %s or %s for all ranks, or %s=0.0.0.0 at rank 0 to let in whoever comes first",
			n, p.job.size, EnvSecret, EnvSecretFile, EnvListen)
	case allLoopback(ips):
		return ips[0].Unmap().String(), nil
	}
	return loopback.String(), nil
}

func allLoopback(ips []netip.Addr) bool {
	for _, ip := range ips {
		if !ip.IsLoopback() {
			return false
		}
	}
	return len(ips) > 0
}

func isReset(err error) bool {
	return errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ENOTCONN)
}
