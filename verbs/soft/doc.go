// Package soft is the software device: it behaves as a NIC does, without one. It executes work requests, raises RNR,
// moves queue pairs to error and completes in order, over three wires: loop (inside one process, seeded and
// deterministic), shm (shared memory between processes of a host) and tcp. A QP takes its wire when it is connected,
// from what both devices' addresses offer.
//
// Concurrency: as package verbs says, a Device has one owner at a time; background goroutines (accepting and dialling
// connections) hand their results over through a queue that the owner drains in PollCQ.
//
// This package carries no compatibility promise yet.
package soft
