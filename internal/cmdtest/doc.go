// Package cmdtest lets the test of a command run the command: the test binary, started again, is
// the command, and so are its ranks. A Program was built for that.
//
// Concurrency: all functions may be called by several tests at once.
package cmdtest
