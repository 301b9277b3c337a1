// Package check holds a transport to the contract of package transport in builds with -tags
// invariants: Sink stands between a transport and the Sink of its engine. A transport creates and
// calls it only where invariant.Enabled is true.
//
// Concurrency: as the transport, whose owner alone calls it.
package check
