// Package tmsrq is the transport over RC queue pairs with a tag-matching SRQ: receives added to
// its TagList are matched by the device, which moves their data too; messages that find none come
// to the Sink as with transport rc. What both have in common is in transport/internal/links.
//
// Concurrency: a Transport has one owner at a time (the engine, under its lock), and so has its
// TagList. Wait and Wake are the exceptions: any goroutine may call them, without the owner's lock.
// The Sink is called from inside Poll only; it may call every posting method, those of the TagList
// included.
//
// Buffers: the device owns the buffer of a receive from Add until the receive has ended (package
// transport says when). A message lands in that buffer or, where it might not fit, in a bounce
// buffer of the list, from which the transport copies it when the receive ends. The transport does
// not touch a receive's buffer after it has reported the end.
//
// "TMO 5.3" is section 5.3 of docs/tag-matching-offload.md, V1 to V19 are its invariants (7.1).
//
// This package carries no compatibility promise yet.
package tmsrq
