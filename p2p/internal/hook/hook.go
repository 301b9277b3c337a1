package hook

import (
	"github.com/tagmatch/tagmatch/bootstrap"
	"github.com/tagmatch/tagmatch/verbs/soft"
)

// Wiring is a Bootstrap that also says over what its ranks are connected: the loop wire of Fabric,
// and before it, with a device for each, of the fabrics in Near, where the other rank has them too.
type Wiring struct {
	bootstrap.Bootstrap
	Fabric *soft.Fabric
	Near   []*soft.Fabric
	Seed   uint64
}
