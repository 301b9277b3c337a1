package wire

import (
	"log/slog"
	"time"
)

// Names of the wires.
const (
	Loop = "loop"
	SHM  = "shm"
	TCP  = "tcp"
)

// Env is what a wire gets from the device that opens it.
type Env struct {
	Self        *Address      // id, rank and pid are set; each wire adds where it can be reached, before the address is encoded
	Receiver    Receiver      // the device
	Notifier    Notifier      // where the owner sleeps
	Secret      []byte        // job secret, see package dial
	PeerTimeout time.Duration // how long connecting is tried
	Yields      bool          // another wire can take over
	Log         *slog.Logger  // nil: silent
}

var started = time.Now()

// Monotonic is the clock, in nanoseconds, where no fabric has a virtual one.
func Monotonic() int64 { return int64(time.Since(started)) }
