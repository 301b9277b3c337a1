// Package check holds a transport to the contract of package transport in builds with -tags
// invariants: Sink stands between a transport and the Sink of its engine. In other builds it is
// nothing, and its methods are empty.
//
// Concurrency: as the transport, whose owner alone calls it.
//
// V1 to V19 are the invariants of section 7.1 of docs/tag-matching-offload.md.
package check
