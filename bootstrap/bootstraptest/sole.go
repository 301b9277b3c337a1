// Package bootstraptest has a job for programs that measure what ranks cost.
package bootstraptest

import (
	"github.com/tagmatch/tagmatch/bootstrap"
	"github.com/tagmatch/tagmatch/bootstrap/internal/rendezvous"
)

// NewSole returns a rank of a job of size ranks of which no other exists. Under each key that it
// has put, made returns at a Fence what another one has; it may not keep mine. Close it.
func NewSole(rank, size int, made func(other int, mine []byte) []byte) bootstrap.Bootstrap {
	return rendezvous.NewSole(rank, size, made)
}
