// Package soft is the software device: it behaves as a NIC does, without one. It executes work
// requests, raises RNR, moves queue pairs to error and completes in order, over three wires: loop
// (inside one process, seeded and deterministic), shm (shared memory between processes of a host)
// and tcp. A QP takes its wire when it is connected, from what both devices' addresses offer. Wires
// and registered memory are packages below internal; receiver.go is where packets come from them.
//
// A tag-matching SRQ does what docs/tag-matching-offload.md says in sections 1 to 5, and in section
// 9 of what the sources leave open; package softtest has the alternatives, and faults. "TMO 5.2" is
// section 5.2 of it, V1 to V19 are its invariants. Eager messages are matched on every QP of the
// SRQ; rendezvous only on QPs with a send queue of length 0, which is then the device's. A message
// is classified by its first packet: MATCH is reported at once, an unexpected message when it is
// complete. If its QP fails before that, the message is taken out of the count.
//
// Concurrency: as package verbs says, a Device has one owner at a time; background goroutines
// (accepting and dialling connections) hand their results over through a queue that the owner
// drains in PollCQ.
//
// Asynchronous mode ([Device.Async]): a goroutine of the device's own is its owner whenever nobody
// else holds the owner's lock and nobody has polled lately. It sleeps until something arrives,
// matches it, and answers, so that a program's receives make progress while it computes. What it
// does for a rendezvous on shared memory is little: the bytes are copied by the processor of the
// sender, who must be inside the library for that, or have a goroutine of this kind or a progress
// goroutine itself. Where the kernel does not let it, and on tcp, the device's goroutine copies.
// With GOMAXPROCS 1 the Go scheduler lets a computation run for up to 10 ms before it looks whether
// anything has arrived.
//
// This package carries no compatibility promise yet.
package soft
