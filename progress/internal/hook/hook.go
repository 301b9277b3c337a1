// Package hook is what package progress shows to package progresstest and to nobody else. Package
// progress sets it.
package hook

import "context"

// WithGrace is progresstest.WithGrace; cfg and what it returns are a progress.Config, which this
// package cannot name.
var WithGrace func(cfg any, grace func() (context.Context, context.CancelFunc)) any
