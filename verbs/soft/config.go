package soft

import (
	"cmp"
	"log/slog"
	"time"

	"github.com/tagmatch/tagmatch/internal/secure"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/dial"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/hook"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/loop"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/wire"
)

// Names of the wires.
const (
	WireLoop = wire.Loop
	WireSHM  = wire.SHM
	WireTCP  = wire.TCP
)

// Fabric connects the loop wires of one process's devices. Any goroutine may use it.
type Fabric = loop.Fabric

// NewFabric makes a fabric without devices, which delivers every packet at the receiver's next
// poll.
func NewFabric() *Fabric { return loop.NewFabric(loop.Options{}) }

// Config of Open. The zero value opens a device on shm and tcp.
//
// A peer is reached over the first of Wires that both devices have and that can reach it. If shared
// memory cannot be opened, or two devices cannot connect over it, they use the next of Wires. See
// Device.Missing.
type Config struct {
	Name   string   // of the device; default "soft"
	Wires  []string // in order of preference; default shm, tcp (loop if Fabric is set)
	Secret []byte   // of the job: both ends of each connection prove that they have it
	Rank   int      // of this process, for the error messages of peers
	// TLS, if not nil, is for the connections of the tcp wire: what they carry is then sealed, see
	// package seal. Both ends of a connection have the same kind, or they do not connect.
	TLS       *secure.Layer
	TCPListen string  // host:port to listen on; default 127.0.0.1:0
	TCPPorts  [2]int  // lowest and highest port to listen on, where that of TCPListen is 0; zero: any
	Fabric    *Fabric // of the loop wire

	// PeerTimeout limits for how long a host that does not answer is not noticed (tcp), and for how
	// long a connection is tried that an end lacks something for. The end of a peer's process is
	// noticed at once, a stopped one is waited for. Default 20 s, at least keepalive.Min.
	PeerTimeout time.Duration

	// Carried is added to the device's address, at most 64 bytes, which Device.Carried tells of
	// each address.
	Carried []byte

	MaxInline int // largest inline payload, bytes; default 64 KiB
	RingBytes int // shm: bytes of each receive ring, a power of two, the same on all devices; default 256 KiB, 16 until it is full

	TM       TMConfig // tag matching
	tmFaults *hook.TM // of package softtest; nil in production
	limits   hook.Limits

	habits *hook.Habits // of package softtest; nil in production

	noDirect bool               // see shm.Config
	faults   func(*dial.Config) // see shm.Config

	Logger *slog.Logger // nil: silent
}

// DefaultPeerTimeout is the default of Config.PeerTimeout.
const DefaultPeerTimeout = 20 * time.Second

// maxCQE is DeviceAttr.MaxCQE.
func (c *Config) maxCQE() int { return min(cmp.Or(c.limits.MaxCQE, maxCQE), maxCQE) }
