package hook

import (
	"github.com/tagmatch/tagmatch/bootstrap"
	"github.com/tagmatch/tagmatch/verbs/soft"
)

// Wiring is a Bootstrap that also names the fabrics that connect its ranks: those in Near first,
// with a device for each, to ranks that have them too; then the loop wire of Fabric.
type Wiring struct {
	bootstrap.Bootstrap
	Fabric *soft.Fabric
	Near   []*soft.Fabric
}
