// Package stacks tells from the runtime's stacks which goroutines are in calls of the library, and
// where in the program, and which are outside of it.
//
// Concurrency: its functions may be called by any goroutine.
package stacks
