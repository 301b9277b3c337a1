package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"time"
)

// Bootstrap tells ranks of each other.
type Bootstrap interface {
	Rank() int
	Size() int
	Info() Info
	// Put offers value to all ranks under this rank's key, from the next Fence on. The value is
	// copied; a later Put of the same key replaces it.
	Put(ctx context.Context, key string, value []byte) error
	// Fence waits for all ranks to call it and makes visible what they have put. If ctx ends first
	// this rank gives the job up: the Fence of the others fails too, naming it.
	Fence(ctx context.Context) error
	// Get returns what rank put under key before a Fence that has ended. The caller must not change
	// the bytes.
	Get(ctx context.Context, rank int, key string) ([]byte, error)
	// Abort ends the job: the calls of all ranks fail from then on, and the launcher is told to
	// stop them with code. It does not end this process.
	Abort(code int, reason string)
	// Aborted reports an Abort of any rank, this one included: the channel gives one AbortInfo and
	// is then closed. Close closes it without one.
	Aborted() <-chan AbortInfo
	// Losses reports the ranks that leave the job, one by one, whether they died or called Close,
	// and those that have given this rank up (Part). Close closes the channel; where nobody finds
	// such things out it is closed from the start.
	Losses() <-chan Loss
	// Part tells a rank, and nobody else, that this one has given it up, because the connection
	// between the two could not be made or has failed: it gets a Loss with Parted set. Others are
	// not concerned, and neither is what the Bootstrap itself does with the two. It may block for
	// as long as the launcher's store does not take messages. An error says that nobody was told:
	// the rank finds out by itself, or waits for ever where there never was a connection.
	Part(rank int, reason string) error
	// Lost is told, before the program can learn of it, that this rank has lost another one, and
	// Leave, before the peers can notice it, that this rank is about to leave, and whether all
	// ranks have come to the end of the job. A launcher that is to say which rank brought a job
	// down wants to know both. They do not block.
	Lost(rank int)
	Leave(finished bool)
	// Close leaves the job. Rank 0 waits a couple of seconds at most for the others to leave too.
	Close() error
}

// Info is what a Bootstrap knows besides; it does not change.
type Info struct {
	// LocalRank is this rank's number among the LocalSize ranks of this host. Where the launcher
	// does not tell, LocalRank is -1, or both are 0.
	LocalRank, LocalSize int
	// LocalIP is the address at which the other ranks reach this host: the local end of the
	// connection to rank 0, or loopback when all ranks are on one host. The zero Addr stands for
	// loopback.
	LocalIP      netip.Addr
	Launcher     string // one of Launchers
	JobID        string // equal on all ranks, unique for each run of a job; empty: not known
	Secret       []byte // of the job: SecretSize bytes that the caller must not change, or nil
	SecretOrigin string // where Secret comes from, for people
}

// Loss says that a rank is not in the job any more or, if Parted is set, that it has given this
// rank up.
type Loss struct {
	Rank   int
	Reason string
	Parted bool
}

// AbortInfo says who aborted the job and why. Rank is -1 when it was the launcher.
type AbortInfo struct {
	Rank   int
	Code   int
	Reason string
}

// Limits of what a rank may exchange.
const (
	MaxKey   = 1 << 10 // bytes of a key
	MaxValue = 1 << 20 // bytes of a value
	MaxFence = 8 << 20 // bytes that one rank may put between two fences, keys included
)

// SecretSize is the length of a job secret in bytes.
const SecretSize = 32

// DefaultTimeout is how long Detect waits for all ranks where nothing else is said.
const DefaultTimeout = 5 * time.Minute

// Options of Detect. The zero value finds everything in the environment; a field that is set wins
// over its variable.
type Options struct {
	Getenv   func(string) string // default os.Getenv
	Unsetenv func(string) error  // default os.Unsetenv, or nothing when Getenv is set

	Launcher      string // TAGMATCH_LAUNCHER: "" finds one, else a name that Launchers lists
	Secret        []byte // TAGMATCH_SECRET, TAGMATCH_SECRET_FILE: SecretSize bytes
	RequireSecret bool   // TAGMATCH_REQUIRE_SECRET: refuse a job to which no secret was given
	// Listen is the address at which rank 0 serves; "0.0.0.0" or "::" for all of this host
	// (TAGMATCH_LISTEN).
	Listen string
	// Timeout is how long Detect waits for all ranks; 0: DefaultTimeout, below 0: no limit
	// (TAGMATCH_JOIN_TIMEOUT).
	Timeout time.Duration
	// PeerTimeout is how soon a host that has joined and does not answer is detected; 0: 20
	// seconds; at least 6.
	PeerTimeout time.Duration
	Linger      time.Duration // how long Close of rank 0 waits for the others; 0: 2 seconds
	Logger      *slog.Logger  // refused connections and the like; nil: silent

	handshake time.Duration // tests shorten it
}

// Found is what Inspect learns without joining the job.
type Found struct {
	Launcher             string
	Rank, Size           int
	LocalRank, LocalSize int    // -1: not said
	Rendezvous           string // host:port, "" when there is none
	SecretOrigin         string
	// Ignored are launchers whose variables are there, but which this package cannot speak to yet;
	// known also where Inspect gives an error.
	Ignored []string
}

// Detect finds the launcher, joins its job and returns when all ranks have joined. It ends with
// ctx, or after Options.Timeout. When that is over for one rank it is for all that have joined, and
// the error of each names those that have not; a rank whose ctx has ended gives up alone, and may
// join again.
func Detect(ctx context.Context, opt Options) (Bootstrap, error) {
	opt.setDefaults()
	p, err := find(&opt)
	if err != nil {
		return nil, err
	}
	timeout, err := opt.timeout()
	if err != nil {
		return nil, err
	}
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, timeout, &joinTimeout{timeout})
		defer cancel()
	}
	return p.join(ctx)
}

// Inspect says what Detect would find, without touching the network.
func Inspect(opt Options) (Found, error) {
	opt.setDefaults()
	p, err := find(&opt)
	if err != nil {
		return Found{Ignored: ignored(&opt)}, err
	}
	return p.found(), nil
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
		o.Getenv = os.Getenv
	}
	if o.Linger == 0 {
		o.Linger = 2 * time.Second
	}
	if o.PeerTimeout == 0 {
		o.PeerTimeout = 20 * time.Second
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.handshake == 0 {
		o.handshake = 10 * time.Second
	}
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

// ParseTimeout reads Options.Timeout as people write it: a duration, or "none" (-1) for no limit.
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

// joinTimeout is why a context of Detect ended: all ranks waited long enough, and not this one's
// program alone.
type joinTimeout struct{ d time.Duration }

func (e *joinTimeout) Error() string {
	return fmt.Sprintf("the %v of %s are over", e.d, EnvJoinTimeout)
}
