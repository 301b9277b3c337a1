// Package shm is the wire over memory that processes of one host share.
package shm

import "github.com/tagmatch/tagmatch/verbs/soft/internal/mem"

// Config is what the wire needs to know beside its environment.
type Config struct {
	RingBytes int        // bytes of each receive ring
	NoDirect  bool       // peers' memory is never read directly
	Regions   *mem.Table // the device's; it gets shared memory before anything is registered
}
