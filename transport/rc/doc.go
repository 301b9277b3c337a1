// Package rc is the transport over plain RC queue pairs: one queue pair for each rank, all with one
// SRQ and one CQ. Matching is in software, in the engine.
//
// Concurrency: a Transport, and everything else here, has one owner at a time (the engine, under
// its lock). Wait and Wake are the exceptions: any goroutine may call them, without the owner's
// lock. The Sink is called only from inside Poll.
//
// Messages have the layout of a tag-matching SRQ (headers.go). transport/tmsrq therefore uses the
// same messages, and parts of this package: Links (queue pairs, sending, reading, credit cells,
// loss of peers), Ring (receive buffers), Address and the headers. "TMO 8.2" is section 8.2 of
// docs/tag-matching-offload.md, V1 to V19 are its invariants.
//
// This package carries no compatibility promise yet.
package rc
