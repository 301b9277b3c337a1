package wire

import (
	"log/slog"
	"time"

	"github.com/tagmatch/tagmatch/internal/secure"
)

// Names of the wires.
const (
	Loop = "loop"
	SHM  = "shm"
	TCP  = "tcp"
)

// Env is what a device gives the wires that it opens.
type Env struct {
	Self        *Address      // each wire adds where it can be reached, before the address is encoded
	Receiver    Receiver      // the device
	Notifier    Notifier      // where the owner sleeps
	Secret      []byte        // job secret, see package dial
	TLS         *secure.Layer // of connections that can leave the host; nil: they are plain
	PeerTimeout time.Duration // see soft.Config
	Alone       bool          // the device has no other wire, which a Poll that takes its time would hold up
	Yields      bool          // another wire follows that a peer can be left to
	Log         *slog.Logger  // nil: silent
}

var started = time.Now()

// Monotonic is the time in nanoseconds since this process started.
func Monotonic() int64 { return int64(time.Since(started)) }
