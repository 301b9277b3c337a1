// Package shm is the wire over memory that processes of one host share.
package shm

import (
	"github.com/tagmatch/tagmatch/verbs/soft/internal/dial"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/mem"
)

// Config is what the wire needs beside its wire.Env.
type Config struct {
	RingBytes int                // bytes of each receive ring
	NoDirect  bool               // never read or write peers' memory directly
	Regions   *mem.Table         // the device's, still empty; Open moves it to shared memory
	Faults    func(*dial.Config) // tests: makes connections fail; nil: does nothing
}
