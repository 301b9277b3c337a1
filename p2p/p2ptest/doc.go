// Package p2ptest runs several ranks inside one process, for tests of programs and libraries that
// use package p2p. The ranks exchange messages over the in-process wire, so that the race detector
// sees every access.
//
// Concurrency: Run may be called from several tests at once; its Worlds are independent.
//
// This package carries no compatibility promise yet.
package p2ptest
