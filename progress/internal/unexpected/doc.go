// Package unexpected keeps the messages of a rank that no receive has matched: eager messages with
// a copy of their bytes, and rendezvous requests, whose bytes stay with their senders.
//
// It owns the queue, the records and buffers of the messages, their order and the count of their
// bytes. It knows no operation, no transport and no protocol: a source is a rank, a request is what
// the sender said of its buffer. Nothing here bounds what is kept: each message has a cost, which
// the caller charges to its sender when it arrives, and gives back when Drop, Withdraw or
// DropLost return it.
//
// Order: each message has a number by order of arrival, and Match takes the oldest one that a
// receive matches (V1 and V3 of docs/tag-matching-offload.md, section 7.1). A request that was
// matched can be requeued: it is found again at its old place.
//
// Complexity: KeepEager, KeepRequest and Drop take constant time, Match takes that of package
// matching. While requests are requeued, Requeue, Match and Withdraw are linear in their number,
// that of receives that were cancelled while they read. Withdraw finds a request by an index for
// its source, made when the first one is withdrawn.
//
// Lifetime: a Message belongs to the Queue. Match lends it to the caller until Drop, its Data
// included; both are used again for later messages. Memory of dropped messages is kept up to a
// fourth of the limit that New got for buffers, and up to the limit for records.
//
// Concurrency: a Queue has one owner at a time; the engine calls it under its lock.
package unexpected
