package bootstrap

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strconv"
	"syscall"

	"github.com/tagmatch/tagmatch/bootstrap/internal/rendezvous"
	"github.com/tagmatch/tagmatch/internal/launch/link"
)

// envPlan joins a job whose environment tells where rank 0 serves the rendezvous.
type envPlan struct {
	opt    *Options
	job    jobVars
	secret rendezvous.Secret
	from   string // the variables that tell it
}

func (p *envPlan) found() Found {
	f := Found{Launcher: p.job.Launcher, Rank: p.job.Rank, Size: p.job.Size, LocalRank: p.job.LocalRank, LocalSize: p.job.LocalSize,
		Rendezvous: p.job.address(), RendezvousOrigin: p.from, SecretOrigin: p.secret.Origin}
	if p.secret.Bytes == nil {
		f.SecretOrigin = rendezvous.HandedOut
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
	defer context.AfterFunc(gone, func() { giveUp(rendezvous.ErrLauncherGone) })()
	l.Say(link.Joining)
	e, err := p.endpoint(ctx)
	if err != nil {
		_ = l.Close()
		return nil, err
	}
	l.Say(link.Joined)
	e.Launched(l, gone)
	return e, nil
}

func (p *envPlan) endpoint(ctx context.Context) (*rendezvous.Endpoint, error) {
	if p.job.Rank != 0 {
		d := rendezvous.Dialer{Config: &p.opt.cfg, Job: p.job.Job, Secret: p.secret, At: []string{p.job.address()}, From: p.from}
		return d.Join(ctx)
	}
	if p.job.Size == 1 && p.opt.Getenv(EnvRendezvousFD) == "" {
		return p.job.Alone(p.secret), nil
	}
	ln, err := p.listen(ctx)
	if err != nil {
		return nil, err
	}
	sec := p.secret
	if sec.Bytes == nil {
		sec = rendezvous.NewSecret(rendezvous.HandedOut)
		p.opt.Logger.Warn("no job secret was given: rank 0 hands one to whoever completes the roll of ranks", "listen", ln.Addr())
	}
	return p.job.Serve(ctx, &p.opt.cfg, ln, sec)
}

// listen opens the rendezvous, or takes over the socket that the local launcher opened.
func (p *envPlan) listen(ctx context.Context) (net.Listener, error) {
	if s := p.opt.Getenv(EnvRendezvousFD); s != "" {
		fd, err := strconv.Atoi(s)
		if err != nil || fd < 0 {
			return nil, configErrorf("%s is %q, which is not a file descriptor: unset it; only `tagmatch run` sets it", EnvRendezvousFD, s)
		}
		ln, err := inheritListener(fd)
		if what := rendezvous.Remedy(err); what != "" {
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
		return nil, errorf(err, "rank 0 cannot listen on %s (from %s or %s): %v%s", net.JoinHostPort(host, p.job.port), p.from, EnvListen, err, rendezvous.Remedy(err))
	}
	return nil, errorf(err, "port %s (%s) is in use on this host: give the job another by %s; `tagmatch run --hosts` takes another each time; "+
		"a program that rank 0 starts inherits the port: give it %s=singleton, or start it by `tagmatch run`", p.job.port, p.from, EnvMasterPort, EnvBootstrap)
}

// listenHost decides from where the rendezvous can be reached.
func (p *envPlan) listenHost(ctx context.Context) (string, error) {
	if host, _, err := p.opt.listenHost(); host != "" {
		return host, err
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
	n := p.job.LocalSize
	switch {
	case allLoopback(ips) && (literal || n == p.job.Size):
		return ips[0].Unmap().String(), nil
	case p.secret.Bytes != nil:
		return "", nil
	case n > 0 && n < p.job.Size:
		return "", configErrorf("no job secret, but only %d of %d ranks are on this host: set %s or %s for all ranks, or %s=0.0.0.0 at rank 0 to let in whoever comes first",
			n, p.job.Size, EnvSecret, EnvSecretFile, EnvListen)
	case allLoopback(ips):
		return ips[0].Unmap().String(), nil
	}
	return rendezvous.Loopback.String(), nil
}

func allLoopback(ips []netip.Addr) bool {
	for _, ip := range ips {
		if !ip.IsLoopback() {
			return false
		}
	}
	return len(ips) > 0
}
