// Package cmdtest lets the test of a command run the command: the test binary, started again, is
// the command, and so are its ranks.
//
// Concurrency: Run and Job may be called by several tests at once.
package cmdtest
