// Package verbs is the device contract: the objects and rules of libibverbs in Go.
//
// Concurrency: a Device and everything created from it has one owner at a time. The caller
// serialises all calls (the engine does it with its lock); the exceptions are CompChannel.Wait and
// CompChannel.Wake, which say so. This is what libibverbs calls a thread domain, and it is what
// lets a device's hot path do without locks of its own.
//
// Names, numeric values, states, masks and error numbers are those of libibverbs (the sources are
// named beside each rule; "TMO 3.1" is section 3.1 of docs/tag-matching-offload.md, V1 to V19 are
// its invariants). What differs, and why:
//
//   - A scatter/gather entry holds a Go slice, not an address. Its memory stays reachable by the
//     region that it lies in, until Dereg, and inline data by their copy: a device need not hold
//     the slices of single requests.
//   - Port 1 and P_Key index 0 are those that the device was opened with.
//   - A Device is what libibverbs calls a context: an opened device.
//   - A QP is pointed at its peer by an opaque Device.Address instead of LID or GID: a software
//     device puts a socket name there, an InfiniBand device its port's address.
//   - Devices tell each other short messages (Device.Tell), by which programs exchange what queue
//     pairs are connected with, and learn of the end of a peer. With libibverbs they use sockets.
//   - A completion may lend the received bytes in place (WC.Data), as NICs scatter small payloads
//     into the CQE.
//   - Errors are *Error values that wrap a syscall.Errno: errors.Is(err, syscall.ENOMEM) works.
//
// This package carries no compatibility promise yet.
package verbs
