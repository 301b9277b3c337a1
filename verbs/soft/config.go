package soft

import (
	"log/slog"
	"time"

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

// FabricOptions say how a Fabric behaves. The zero value delivers every packet at the receiver's
// next poll.
type FabricOptions = loop.Options

// NewFabric makes a fabric.
func NewFabric(opts FabricOptions) *Fabric { return loop.NewFabric(opts) }

// Config of Open. The zero value opens a device on shm and tcp.
//
// A peer is reached over the first of Wires that both ends have and that can reach it. Where shared
// memory cannot be used at all, or turns out not to work between two devices when they connect, the
// next wire takes over, if there is one, or else Spare, over which no peer is reached otherwise.
// See Device.Missing.
type Config struct {
	Name      string   // what Device.Name answers; default "soft"
	Wires     []string // wires that may be used, best first; default shm, tcp (loop when Fabric is set)
	Spare     string   // wire that takes over where one of Wires cannot be opened, or later cannot connect; tcp
	Secret    []byte   // job secret: both ends of every connection prove that they know it; nil: an empty one
	Rank      int      // this process's rank, told to peers for their error messages
	TCPListen string   // host:port to listen on; default 127.0.0.1:0
	Fabric    *Fabric  // the process-local fabric of the loop wire

	// PeerTimeout bounds how long connecting to a peer is tried, and how long a host that does not
	// answer goes unnoticed (tcp); a process that ends is noticed at once. Default 20 s, at least
	// keepalive.Min.
	PeerTimeout time.Duration

	MaxInline int  // largest inline payload, bytes; default 64 KiB
	RingBytes int  // shm: bytes of each receive ring, a power of two; default 256 KiB
	NoDirect  bool // shm: never read peers' memory directly, as where the kernel forbids it

	AsyncCPUs []int // processors that the goroutine of Async runs on, instead of the process's; Linux

	TM TMConfig // tag matching
	tm hook.TM  // the same, with what package softtest adds

	Logger *slog.Logger // nil: silent
}

// DefaultPeerTimeout is that of Config.PeerTimeout.
const DefaultPeerTimeout = 20 * time.Second
