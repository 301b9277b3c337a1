// Package jobtest tests whole jobs: operating-system processes that exchange messages through
// package p2p. The test binary is also the program of the ranks: a rank is the binary started again
// with the name of a role in its environment.
//
// Concurrency: it has no code of its own outside tests.
package jobtest
