package soft

import "log/slog"

// Names of the wires.
const (
	WireLoop = "loop"
	WireSHM  = "shm"
	WireTCP  = "tcp"
)

// Config of Open. The zero value opens a device on shm and tcp.
type Config struct {
	Name      string   // what Device.Name answers; default "soft"
	Wires     []string // wires that may be used, best first; default shm, tcp (loop when Fabric is set)
	Secret    []byte   // job secret: both ends of every connection prove that they know it; nil: an empty one
	Rank      int      // this process's rank, told to peers for their error messages
	TCPListen string   // host:port to listen on; default 127.0.0.1:0
	Fabric    *Fabric  // the process-local fabric of the loop wire

	MaxInline int  // largest inline payload, bytes; default 64 KiB
	RingBytes int  // shm: bytes of each receive ring, a power of two; default 256 KiB
	NoDirect  bool // shm: never read peers' memory directly, as where the kernel forbids it

	AsyncCPUs []int // processors that the goroutine of Async runs on, instead of the process's; Linux

	TM TMConfig // tag matching

	Logger *slog.Logger // nil: silent
}
