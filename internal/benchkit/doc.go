// Package benchkit is what the examples and the benchmark program share: flags, the pair of ranks that measures, timing, and
// the result lines of `-json`.
//
// Concurrency: a Session belongs to one goroutine.
//
// This package carries no compatibility promise yet.
package benchkit
