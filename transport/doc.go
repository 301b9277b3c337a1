// Package transport defines the interface between the progress engine and its transports. A
// transport moves tagged messages, rendezvous requests and control messages between ranks over a
// verbs.Device. It never matches in software, never blocks and has no goroutine of its own.
//
// "TMO 6.4" is section 6.4 of docs/tag-matching-offload.md.
//
// Concurrency: a Transport has one owner at a time (the engine, under its lock); Wait and Wake are
// the exceptions.
//
// This package carries no compatibility promise yet.
package transport
