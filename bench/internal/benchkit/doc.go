// Package benchkit is the common part of bench's tests: flags, launching, clock and verification,
// and the result lines of -json.
//
// Concurrency: a Session, and the objects it returns, belong to one goroutine.
package benchkit
