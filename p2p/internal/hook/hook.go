package hook

import (
	"context"

	"github.com/tagmatch/tagmatch/verbs/soft"
)

// Bootstrap is p2p.Bootstrap once more: p2p imports this package.
type Bootstrap interface {
	Rank() int
	Size() int
	Put(ctx context.Context, key string, value []byte) error
	Fence(ctx context.Context) error
	Get(ctx context.Context, rank int, key string) ([]byte, error)
	Abort(code int, reason string)
	Close() error
}

// Wiring is a Bootstrap that also says over what its ranks are connected: the loop wire of Fabric, and before it, with a
// device for each, of the fabrics in Near, where the other rank has them too.
type Wiring struct {
	Bootstrap
	Fabric *soft.Fabric
	Near   []*soft.Fabric
	Seed   uint64
}
