package bootstrap

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"time"

	"github.com/tagmatch/tagmatch/bootstrap/internal/rendezvous"
)

// Bootstrap connects the ranks of a job before they can send messages.
type Bootstrap interface {
	Rank() int
	Size() int
	Info() Info
	// Put publishes value to all ranks under this rank's key, from the next Fence on. The value is
	// copied; a later Put of the same key replaces it.
	Put(ctx context.Context, key string, value []byte) error
	// Fence is a barrier that makes visible what all ranks have put. If ctx ends first, this rank
	// leaves the job: the Fence of the others fails too, with an error that names it.
	Fence(ctx context.Context) error
	// Get returns the value that rank put under key before a completed Fence. The caller must not
	// change the bytes.
	Get(ctx context.Context, rank int, key string) ([]byte, error)
	// Abort ends the job: later calls of all ranks fail, and the launcher stops the ranks with exit
	// code code. It does not end this process.
	Abort(code int, reason string)
	// Aborted reports an Abort of any rank, this one included: the channel gives one AbortInfo and
	// is then closed. Close closes it without one.
	Aborted() <-chan AbortInfo
	// Losses reports each rank that leaves the job, by its death or by Close, and each that has
	// given up this rank (ReportGivenUp). One that leaves when all ranks have reached the end of
	// the job, as it has told Leave, may not be reported. The channel is closed when nothing more
	// can be reported: by Close, when the connection to rank 0 is lost, or at once where losses
	// cannot be detected. A World then connects to every rank that it waits for, to hear of its
	// end: to all of them once it receives from any source.
	Losses() <-chan Loss
	// ReportGivenUp reports to a rank, and to no other, that this rank has given it up, because the
	// connection between the two failed or could not be made: the rank gets a Loss with GivenUp
	// set. The Bootstrap's own connections are unaffected. ReportGivenUp may block while the
	// launcher's store takes no messages. After an error the rank was not told: it detects the loss
	// by itself, or never, if there was no connection.
	ReportGivenUp(rank int, reason string) error
	// Lost and Leave inform a launcher that reports which rank brought a job down; they do not
	// block. Lost is called before the program can see the loss of rank. Leave is called before the
	// peers can detect that this rank leaves; finished means that all ranks reached the end of the
	// job.
	Lost(rank int)
	Leave(finished bool)
	// Ask asks all ranks a question of at most MaxQuestion bytes, this one included, and calls
	// heard with each Reply as it comes, in this goroutine. It returns nil when all have replied,
	// or heard has returned false; else it ends with ctx. A rank that is stopped does not reply,
	// and none does where rank 0 is, through which questions and replies go. It is for looking into
	// a job that may hang, and delays nothing else.
	Ask(ctx context.Context, question string, heard func(Reply) (more bool)) error
	// Answer has answer called for each question that a rank asks, this one included: one at a
	// time, in the background, until Close has returned. It may return MaxReply bytes.
	Answer(answer func(question string) []byte)
	// Close leaves the job. Rank 0 first waits a couple of seconds at most for the others to leave.
	Close() error
}

// Info is further constant facts about the job:
//
//   - LocalRank is this rank's number among the LocalSize ranks of this host. Where the launcher
//     does not tell, LocalRank is -1, or both are 0.
//   - LocalIP is the address at which the other ranks reach this host, the local end of the
//     connection to rank 0; loopback, or the zero Addr, when all ranks are on one host.
//   - Launcher is one of Launchers. JobID is equal on all ranks and unique for each run of a job;
//     empty: not known.
//   - Secret has SecretSize bytes that the caller must not change, or is nil. SecretOrigin says
//     where it comes from, for people. SecretExposed: others than the ranks may have read it; TLS
//     is refused with it.
type Info = rendezvous.Info

// Loss reports that Rank left the job or, with GivenUp, that it gave up this rank, and the Reason.
type Loss = rendezvous.Loss

// Reply is what Rank answers to an Ask: Body, which is the caller's, or Why there is none.
type Reply = rendezvous.Reply

// Why of a Reply, beside what a Loss has as its Reason.
const (
	WhyLeft    = rendezvous.WhyLeft    // the rank has called Close
	WhyUnheard = rendezvous.WhyUnheard // it is not asked, as it has not replied to some questions before
	WhyDeaf    = rendezvous.WhyDeaf    // it has not called Answer
	WhyEnded   = rendezvous.WhyEnded   // a part of Why: its process has ended
)

// Waits is what a rank waits for while it joins, for who looks into it.
type Waits = rendezvous.Waits

// AbortInfo describes an Abort: Rank (-1: the launcher), Code and Reason.
type AbortInfo = rendezvous.AbortInfo

// ReasonLeft is the Reason of the Loss of a rank that has called Close, and of the RankError of a
// Fence to which it does not come any more.
const ReasonLeft = rendezvous.ReasonLeft

// Limits of Put and Fence.
const (
	MaxKey   = rendezvous.MaxKey   // bytes of a key
	MaxValue = rendezvous.MaxValue // bytes of a value
	MaxFence = rendezvous.MaxFence // bytes that one rank may put between two fences, keys included
)

// Limits of Ask and Answer.
const (
	MaxQuestion = rendezvous.MaxQuestion // bytes
	MaxReply    = rendezvous.MaxReply    // bytes
)

// SecretSize is the length of a job secret in bytes.
const SecretSize = rendezvous.SecretSize

// NewLocal returns n Bootstraps, the ranks of a job inside this process, for tests and simulations.
// Close each; no Close waits for the others.
func NewLocal(n int) []Bootstrap {
	list := make([]Bootstrap, n)
	for r, e := range rendezvous.NewLocal(n) {
		list[r] = e
	}
	return list
}

// DefaultTimeout is the default of Options.Timeout.
const DefaultTimeout = 5 * time.Minute

// Options of Detect. The zero value reads everything from the environment; a field that is set wins
// over its variable.
type Options struct {
	Getenv   func(string) string // default os.Getenv, of which nothing is read where this is set
	Unsetenv func(string) error  // default os.Unsetenv, or nothing when Getenv is set

	Launcher      string // TAGMATCH_BOOTSTRAP: "" finds one, else a name that Launchers lists
	Secret        []byte // TAGMATCH_SECRET, TAGMATCH_SECRET_FILE: SecretSize bytes
	RequireSecret bool   // TAGMATCH_REQUIRE_SECRET: refuse a job to which no secret was given
	// TLS has the connections of the rendezvous encrypted: off (""), secret, or three PEM files as
	// CERTIFICATE,KEY,ROOTS; of one kind at all ranks. It needs a secret, and refuses one that the
	// rendezvous or a store that others read would hand out (TAGMATCH_TLS).
	TLS string
	// Listen is the address at which rank 0 serves; "0.0.0.0" or "::" for all of this host
	// (TAGMATCH_LISTEN).
	Listen string
	// Ports bounds the ports at which this rank listens, as LOW-HIGH (TAGMATCH_PORTS). A port that
	// the launcher gives for the rendezvous (MASTER_PORT) stays what it is.
	Ports string
	// Timeout is how long Detect waits for all ranks; 0: DefaultTimeout, below 0: no limit
	// (TAGMATCH_JOIN_TIMEOUT).
	Timeout time.Duration
	// PeerTimeout is how soon a host that has joined and does not answer is detected; 0: 20
	// seconds; at least 6.
	PeerTimeout time.Duration
	Linger      time.Duration // how long Close of rank 0 waits for the others; 0: 2 seconds
	Logger      *slog.Logger  // refused connections and the like; nil: silent
	Waits       *Waits        // told what this rank waits for while it joins; nil: nobody asks
	// Found is called with what Detect has found, without Present, before it joins; nil: nobody is.
	Found func(Found)

	cfg     rendezvous.Config // what the above comes to
	toldFor time.Duration     // see there; longer in tests
}

// Found is what Inspect detects without joining the job.
type Found struct {
	Launcher             string
	Rank, Size           int
	LocalRank, LocalSize int    // -1: not known
	Rendezvous           string // host:port, or how rank 0 publishes it; "" when there is none
	RendezvousOrigin     string
	SecretOrigin         string
	// Present are all launchers that the environment shows, Launcher included, in the order of
	// detection; also valid where Inspect returns an error.
	Present []string
}

// Detect finds the launcher, joins its job and returns when all ranks have joined. It takes
// TAGMATCH_SECRET out of the environment, so that programs which this process starts do not get it;
// later calls of Detect know it all the same. A join that
// takes more than 10 seconds says on the standard error output what it waits for. It ends with ctx,
// or after Options.Timeout. That timeout ends the wait of all ranks that have joined, each with an
// error that names the missing ranks; a rank whose ctx ends gives up alone, and may join again.
func Detect(ctx context.Context, opt Options) (Bootstrap, error) {
	opt.setDefaults()
	p, err := find(&opt)
	if err != nil {
		return nil, err
	}
	if err := opt.hideSecret(); err != nil {
		return nil, err
	}
	timeout, err := opt.timeout()
	if err != nil {
		return nil, err
	}
	if err := opt.resolve(); err != nil {
		return nil, err
	}
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, timeout, &rendezvous.JoinTimeout{After: timeout})
		defer cancel()
	}
	if opt.Found != nil {
		opt.Found(p.found())
	}
	return p.join(ctx)
}

// Inspect reports what Detect would find, without using the network.
func Inspect(opt Options) (Found, error) {
	opt.setDefaults()
	p, err := find(&opt)
	if err != nil {
		return Found{Present: present(&opt)}, err
	}
	f := p.found()
	f.Present = present(&opt)
	return f, nil
}

func (o *Options) setDefaults() {
	if o.Unsetenv == nil {
		if o.Getenv == nil {
			o.Unsetenv = os.Unsetenv
		} else {
			o.Unsetenv = func(string) error { return nil }
		}
	}
	if o.Getenv == nil {
		o.Getenv = getenv
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.toldFor == 0 {
		o.toldFor = toldFor
	}
}

// resolve sets cfg.
func (o *Options) resolve() (err error) {
	o.cfg.Logger, o.cfg.PeerTimeout, o.cfg.Linger, o.cfg.Waits = o.Logger, o.PeerTimeout, o.Linger, o.Waits
	o.cfg.SetDefaults()
	if o.cfg.Locals, err = o.locals(); err != nil {
		return err
	}
	if o.cfg.Ports, err = o.ports(); err != nil {
		return err
	}
	return o.loadTLS()
}

// listenHost is the address that the user has chosen for rank 0, "" where that is left open.
func (o *Options) listenHost() (host string, ip netip.Addr, err error) {
	if host = cmp.Or(o.Listen, o.Getenv(EnvListen)); host == "" {
		return "", ip, nil
	}
	if ip, err = netip.ParseAddr(host); err != nil {
		err = configErrorf("%s is %q: give an IP address of this host, or 0.0.0.0 or :: for all, without a port", EnvListen, host)
	}
	return host, ip, err
}

func (o *Options) timeout() (time.Duration, error) {
	if o.Timeout != 0 {
		return o.Timeout, nil
	}
	s := o.Getenv(EnvJoinTimeout)
	if s == "" {
		return DefaultTimeout, nil
	}
	d, err := ParseTimeout(s)
	if err != nil {
		return 0, configErrorf("%s is %q: %v", EnvJoinTimeout, s, err)
	}
	return d, nil
}

// ParseTimeout parses an Options.Timeout: a duration, or "none" (-1) for no limit.
func ParseTimeout(s string) (time.Duration, error) {
	if s == "none" || s == "-1" {
		return -1, nil
	}
	d, err := time.ParseDuration(s)
	if err != nil || d <= 0 {
		return 0, errors.New("give a positive duration such as 90s or 5m, or none for no limit")
	}
	return d, nil
}
