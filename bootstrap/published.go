package bootstrap

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"github.com/tagmatch/tagmatch/bootstrap/internal/rendezvous"
	"github.com/tagmatch/tagmatch/bootstrap/internal/space"
)

// place is a launcher's key-value space that was found, and what is known before it is opened.
type place struct {
	launcher string         // one of Launchers
	seen     string         // the launcher and what shows it, for people
	id       space.Identity // -1: not known
	vars     []string       // of this process alone: one that it starts must not take them for its own
	public   bool           // others than the ranks can read the space
	open     func(ctx context.Context) (space.Space, error)
}

// publishedPlan joins a job whose launcher has a key-value space: in it rank 0 publishes where it
// serves the rendezvous, and the job's secret.
type publishedPlan struct {
	opt    *Options
	place  place
	secret rendezvous.Secret
}

// plan returns the plan of a place.
func (p place) plan(opt *Options) (plan, error) {
	sec, err := resolveSecret(opt)
	if err != nil {
		return nil, err
	}
	if p.public {
		if err := opt.checkRequired(sec); err != nil {
			return nil, err
		}
	}
	return &publishedPlan{opt, p, sec}, nil
}

func (p *publishedPlan) found() Found {
	id := p.place.id
	f := Found{Launcher: p.place.launcher, Rank: id.Rank, Size: id.Size, LocalRank: id.LocalRank, LocalSize: id.LocalSize,
		Rendezvous: "published by rank 0", RendezvousOrigin: p.place.seen, SecretOrigin: p.secret.Origin}
	if p.secret.Bytes == nil {
		f.SecretOrigin = p.published()
	}
	return f
}

// published is the origin of a secret that rank 0 has made.
func (p *publishedPlan) published() string {
	s := "made by rank 0, handed out by " + p.place.seen
	if p.place.public {
		s += ", where others can read it"
	}
	return s
}

func (p *publishedPlan) join(ctx context.Context) (Bootstrap, error) {
	stop := p.vigil(p.place.id, "to be let in by its launcher")
	s, err := p.place.open(ctx)
	stop()
	if err != nil {
		return nil, errorf(err, "%s: %v", p.place.seen, err)
	}
	e, err := p.meet(ctx, s)
	if err != nil {
		_ = s.Close()
		return nil, err
	}
	e.Within(s)
	for _, v := range p.place.vars {
		if err := p.opt.Unsetenv(v); err != nil {
			_ = e.Close()
			return nil, configErrorf("%s cannot be unset: %v", v, err)
		}
	}
	return e, nil
}

// vigil says that this rank still waits for something of its launcher.
func (p *publishedPlan) vigil(id space.Identity, what string) (stop func()) {
	text := fmt.Sprintf("%s (%s)", what, p.place.seen)
	quiet := p.opt.cfg.Vigil(id.Rank, func() string {
		if !rendezvous.Speaks(id.Rank, id.LocalRank) {
			return ""
		}
		return text
	})
	end := p.opt.cfg.Waits.Begin(func() string { return text })
	return func() {
		quiet()
		end()
	}
}

// meet joins the rendezvous of rank 0.
func (p *publishedPlan) meet(ctx context.Context, s space.Space) (*rendezvous.Endpoint, error) {
	id := s.Identity()
	job := &rendezvous.Job{Launcher: p.place.launcher, Rank: id.Rank, Size: id.Size, LocalRank: id.LocalRank, LocalSize: id.LocalSize,
		Epoch: epochText(id.JobID)}
	switch {
	case job.Size < 1 || job.Size > rendezvous.MaxSize || job.Rank < 0 || job.Rank >= job.Size:
		return nil, configErrorf("%s says that this is rank %d of %d: at most %d ranks are supported", p.place.seen, job.Rank, job.Size, rendezvous.MaxSize)
	case job.Size == 1:
		return job.Alone(p.secret), nil
	case job.Rank == 0:
		return p.invite(ctx, s, job)
	}
	stop := p.vigil(id, "for rank 0 to publish its address")
	value, err := s.Broadcast(ctx, nil)
	stop()
	if err != nil {
		return nil, errorf(err, "rank %d of %d waited for rank 0 to publish its address (%s): %v", job.Rank, job.Size, p.place.seen, err)
	}
	n, err := readNotice(value)
	if err != nil {
		return nil, err
	}
	sec := p.secret
	if sec.Bytes == nil {
		sec = rendezvous.Secret{Bytes: n.Secret, Origin: p.published(), Exposed: p.place.public}
	}
	d := rendezvous.Dialer{Config: &p.opt.cfg, Job: *job, Secret: sec, At: n.addresses(), From: "the address that rank 0 has published"}
	return d.Join(ctx)
}

// invite opens the rendezvous at rank 0 and publishes where it is. Where that fails the others are
// told why: they wait for the address.
func (p *publishedPlan) invite(ctx context.Context, s space.Space, job *rendezvous.Job) (*rendezvous.Endpoint, error) {
	sec := p.secret
	if sec.Bytes == nil {
		sec = rendezvous.NewSecret(p.published())
		sec.Exposed = p.place.public
	}
	ln, n, err := p.listen(ctx, job)
	if err != nil {
		if _, failed := s.Broadcast(ctx, notice{Failure: rendezvous.Reason(err)}.encode()); failed == nil {
			select {
			case <-time.After(p.opt.toldFor):
			case <-ctx.Done():
			}
		}
		return nil, err
	}
	if p.secret.Bytes == nil {
		n.Secret = sec.Bytes
	}
	stop := p.vigil(s.Identity(), "for all ranks to take its address; which are missing the launcher does not tell")
	_, err = s.Broadcast(ctx, n.encode())
	stop()
	if err != nil {
		_ = ln.Close()
		return nil, errorf(err, "rank 0 could not publish its address to all ranks (%s): %v", p.place.seen, err)
	}
	e, err := job.Serve(ctx, &p.opt.cfg, ln, sec)
	if err == nil {
		s.Joined()
	}
	return e, err
}

// toldFor is how long a failure of rank 0 stays published at least: the space may end with it.
const toldFor = time.Second

// listen opens the rendezvous where the other ranks can reach it.
func (p *publishedPlan) listen(ctx context.Context, job *rendezvous.Job) (net.Listener, notice, error) {
	var n notice
	host, ip, err := p.opt.listenHost()
	switch {
	case err != nil:
		return nil, n, err
	case host == "" && job.LocalSize == job.Size:
		host, n.Addrs = rendezvous.Loopback.String(), []netip.Addr{rendezvous.Loopback}
	case host != "" && !ip.IsUnspecified():
		n.Addrs = []netip.Addr{ip}
	default:
		if n.Addrs, err = hostAddresses(p.opt.Getenv(EnvNetdev)); err != nil {
			return nil, n, err
		}
	}
	ln, err := job.Listen(ctx, &p.opt.cfg, host)
	if err != nil {
		return nil, n, errorf(err, "rank 0 cannot listen on %q (%s): %v%s", host, EnvListen, err, rendezvous.Remedy(err))
	}
	n.Port = uint16(ln.Addr().(*net.TCPAddr).Port)
	return ln, n, nil
}

// notice is what rank 0 publishes.
type notice struct {
	Addrs   []netip.Addr `json:"addrs,omitempty"`
	Port    uint16       `json:"port,omitempty"`
	Secret  []byte       `json:"secret,omitempty"`  // nil: the ranks were given one
	Failure string       `json:"failure,omitempty"` // why there is no rendezvous
}

// maxAddrs bounds the addresses of a notice, which are tried one after the other.
const maxAddrs = 8

func (n notice) encode() []byte {
	n.Addrs = n.Addrs[:min(len(n.Addrs), maxAddrs)]
	b, err := json.Marshal(n)
	if err != nil {
		panic(err) // no value of these types fails
	}
	return b
}

func readNotice(b []byte) (notice, error) {
	var n notice
	if err := json.Unmarshal(b, &n); err != nil {
		return n, errorf(ErrProtocol, "what rank 0 has published cannot be read (%v): run the same build of the program on all ranks", err)
	}
	if n.Failure != "" {
		return n, errorf(ErrRefused, "rank 0 cannot serve the rendezvous: %q", n.Failure)
	}
	unusable := func(a netip.Addr) bool { return !a.IsValid() || a.Zone() != "" } // a zone is known on one host only
	if len(n.Addrs) == 0 || len(n.Addrs) > maxAddrs || slices.ContainsFunc(n.Addrs, unusable) || n.Port == 0 || n.Secret != nil && len(n.Secret) != SecretSize {
		return n, errorf(ErrProtocol, "rank 0 has published no usable address: run the same build of the program on all ranks")
	}
	return n, nil
}

// addresses are those of the rendezvous as host:port.
func (n *notice) addresses() []string {
	var list []string
	for _, a := range n.Addrs {
		list = append(list, net.JoinHostPort(a.String(), strconv.Itoa(int(n.Port))))
	}
	return slices.Compact(list)
}
