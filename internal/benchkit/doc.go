// Package benchkit is what bench and the measuring examples share: flags, launching, the ranks that
// measure, clock and verification around a program's own loop (Loop, Stream), and the result lines
// of -json.
//
// Concurrency: a Session, and what it gives, belongs to one goroutine.
//
// This package carries no compatibility promise yet.
package benchkit
