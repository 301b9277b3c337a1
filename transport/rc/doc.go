// Package rc is the transport over plain RC queue pairs: one queue pair for each rank that
// it talks to, all with one SRQ and one CQ. Matching is in software, in the engine.
//
// Concurrency: a Transport has one owner at a time (the engine, under its lock). Wait and Wake are
// the exceptions: any goroutine may call them, without the owner's lock. The Sink is called only
// from inside Poll.
//
// Messages have the layout of a tag-matching SRQ (TMO 2.3, section 2.3 of
// docs/tag-matching-offload.md). Transport tmsrq has the same messages and all but Poll in common
// with this one (transport/internal/links), but connects to its like only.
//
// This package carries no compatibility promise yet.
package rc
