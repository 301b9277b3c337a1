// Package transport says what the progress engine asks of a transport. A transport moves tagged
// messages, rendezvous requests and control messages between ranks over a verbs.Device; it never
// matches in software, never blocks and has no goroutine of its own.
//
// "TMO 6.4" is section 6.4 of docs/tag-matching-offload.md.
//
// Concurrency: a Transport has one owner at a time (the engine, under its lock); Wait and Wake are
// the exceptions.
//
// This package carries no compatibility promise yet.
package transport
