// Package memfd has memory that processes of one host share: sealed memfds, which have no name in a
// file system, so that nothing is left when a process is killed. It is empty outside Linux.
//
// Concurrency: a Segment has one owner at a time.
package memfd
