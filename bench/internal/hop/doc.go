// Package hop measures what limits every message between two processors, whoever sends it: the way
// of a cache line from one to the other.
//
// Concurrency: Probe occupies both processors and must be called by one goroutine at a time.
package hop
