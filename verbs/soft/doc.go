// Package soft is the software device: a verbs device with RC queue pairs and without a NIC.
// Packets travel over three wires: loop (inside one process, deterministic for a seed), shm (shared
// memory between processes of a host) and tcp. A QP gets its wire when it is connected, from the
// addresses of both devices. Wires and registered memory are packages below internal; receiver.go
// is where the device receives packets.
//
// Tag-matching SRQs follow docs/tag-matching-offload.md: sections 1 to 5 and, where the behaviour
// of NICs is not documented, 9; package softtest has alternatives to that. "TMO 5.2" is section 5.2
// of that document, V1 to V19 are its invariants. Eager messages are matched on every QP of the
// SRQ, rendezvous only on QPs with a send queue of length 0, which the device then uses. A message
// is classified by its first packet. MATCH is reported at once, and an unexpected message when it
// is complete; if its QP fails before, it is not counted.
//
// Concurrency: a Device has one owner at a time, as package verbs says. Background goroutines
// accept and dial connections, and put them into a queue that the owner empties in Drain.
//
// Asynchronous mode ([Device.Async]): a goroutine of the device is its owner whenever nobody else
// holds the owner's lock and nobody has polled lately. It sleeps until packets arrive, matches them
// and responds, so that receives progress while the program computes. In a rendezvous on shared
// memory the sender's processor copies the data; for that, the sender must be inside the library,
// or have such a goroutine, or a progress goroutine. Where the kernel forbids that copy, and on
// tcp, the device's goroutine copies. With GOMAXPROCS 1 the Go scheduler lets a computation run for
// up to 10 ms before the goroutine gets its turn.
//
// This package carries no compatibility promise yet.
package soft
