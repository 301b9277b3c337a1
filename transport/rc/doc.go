// Package rc is the transport over plain RC queue pairs: one queue pair for each rank, all
// receiving from one SRQ and completing on one CQ. Tags are matched in software, by the engine
// above.
//
// Concurrency: a Transport has one owner at a time (the engine, under its lock), and so has
// everything else here. Wait and Wake are the exceptions: any goroutine may call them, without the
// owner's lock. The Sink is called from inside Poll only.
//
// Messages have the layout of tag-matching SRQs (headers.go), so that transport/tmsrq speaks the
// same language and uses the parts of this package: Links (queue pairs, sending, reading, credit
// cells, loss of peers), Ring (receive buffers), Address and the headers. "TMO 8.2" is section 8.2
// of docs/tag-matching-offload.md, V1 to V19 are its invariants.
//
// This package carries no compatibility promise yet.
package rc
