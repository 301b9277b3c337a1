// Package rendezvous is where the ranks of a job meet: all dial rank 0, authenticate each other,
// and do over these connections all that package bootstrap promises. What all ranks have put comes
// down a tree of the ranks, see relay.go; wire.go has the protocol.
//
// Rank 0 serves (Job.Serve), the others dial it (Dialer.Join), and a job of one rank needs neither
// (Job.Alone). Each gets an Endpoint, the Bootstrap of its rank.
//
// Concurrency: the methods of an Endpoint may be called from any goroutine. The hub, which is the
// rendezvous without a network, has one lock; a store serves it at a listener, with two goroutines
// a rank.
package rendezvous
