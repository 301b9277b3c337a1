package rendezvous

import (
	"crypto/rand"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"time"

	"github.com/tagmatch/tagmatch/internal/ports"
	"github.com/tagmatch/tagmatch/internal/secure"
)

// Environment variables that error texts say to set. Package bootstrap reads them.
const (
	EnvBootstrap   = "TAGMATCH_BOOTSTRAP"
	EnvSecret      = "TAGMATCH_SECRET"
	EnvSecretFile  = "TAGMATCH_SECRET_FILE"
	EnvTLS         = "TAGMATCH_TLS"
	EnvListen      = "TAGMATCH_LISTEN"
	EnvPorts       = "TAGMATCH_PORTS"
	EnvJoinTimeout = "TAGMATCH_JOIN_TIMEOUT"
)

// Config is how a rank takes part in a rendezvous. A caller sets the exported fields, then calls
// SetDefaults, and changes none after its rank has begun to join.
type Config struct {
	Logger *slog.Logger  // refused connections and the like; nil: silent
	TLS    *secure.Layer // of connections after their authentication; nil: none
	Ports  ports.Range   // at which ranks that pass on listen; the zero Range: any
	Locals []netip.Addr  // from which to dial; nil: the kernel chooses
	// PeerTimeout is how soon a host that has joined and does not answer is detected; 0: 20
	// seconds; at least 6.
	PeerTimeout time.Duration
	Linger      time.Duration // how long Close of rank 0 waits for the others; 0: 2 seconds
	FirstNotice time.Duration // see Vigil; 0: 10 seconds
	Notices     io.Writer     // where Vigil writes; nil: os.Stderr
	Waits       *Waits        // told what this rank waits for; may be nil

	handshake time.Duration // shorter in tests
	fanOut    int           // smaller in tests
}

// SetDefaults sets what is zero.
func (c *Config) SetDefaults() {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Notices == nil {
		c.Notices = os.Stderr
	}
	set(&c.PeerTimeout, 20*time.Second)
	set(&c.Linger, 2*time.Second)
	set(&c.FirstNotice, 10*time.Second)
	set(&c.handshake, 10*time.Second)
	set(&c.fanOut, fanOut)
}

func set[T comparable](v *T, to T) {
	var zero T
	if *v == zero {
		*v = to
	}
}

// Job is what a rank knows of its job before it joins.
type Job struct {
	Launcher             string // for Info
	Rank, Size           int
	LocalRank, LocalSize int    // -1: not known
	Epoch                string // equal for all ranks of one run of the job, at most MaxEpoch bytes
}

// Secret is that of a job, with its origin for error texts. Without Bytes none was given.
type Secret struct {
	Bytes   []byte // SecretSize of them, or nil
	Origin  string
	Exposed bool // others than the ranks may have read it
}

// HandedOut is the origin of a secret that the rendezvous made.
const HandedOut = "made by rank 0, handed out over the rendezvous"

// NewSecret makes a secret.
func NewSecret(origin string) Secret {
	b := make([]byte, SecretSize)
	rand.Read(b) // never fails
	return Secret{b, origin, origin == HandedOut}
}

// JoinTimeout is the cause of a context that ended by the timeout of the whole job's join: the
// other ranks stop waiting too. Where a context ends otherwise, its rank gives up alone.
type JoinTimeout struct{ After time.Duration }

func (e *JoinTimeout) Error() string {
	return fmt.Sprintf("the %v of %s are over", e.After, EnvJoinTimeout)
}
