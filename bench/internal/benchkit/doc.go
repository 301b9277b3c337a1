// Package benchkit is the common part of bench and the measuring examples: flags, launching, clock
// and verification around a program's own loop (Loop, Stream), and the result lines of -json.
//
// Concurrency: a Session, and the objects it returns, belong to one goroutine.
package benchkit
