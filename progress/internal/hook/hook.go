// Package hook is what package progress shows to package progresstest and to nobody else. Package
// progress sets it.
package hook

import "context"

// With is progresstest.With; cfg and what it returns are a progress.Config, which this
// package cannot name.
var With func(cfg any, seed uint64, grace func() (context.Context, context.CancelFunc)) any

// Credit is progresstest.Credit of progress.Engines.
var Credit func(receiver, sender any, to, from int) (used, charged, consumed uint64)
