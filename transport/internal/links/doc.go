// Package links is what transports over RC queue pairs have in common: the connections to all ranks
// with everything that is posted to them and received from them. Transport rc and transport tmsrq
// are built on it and do not know each other.
//
// Type Links owns the objects of the device that a transport needs (protection domain, completion
// channel and queues, SRQ, queue pairs), the receive buffers of the SRQ, the bounce buffers of long
// messages, outstanding RDMA READs, the credit cells, the division of memory regions among peers,
// and the state of each link up to the report of its loss. A transport adds what it does with a
// completion: it embeds Links, which has most methods of transport.Transport, and writes Poll.
//
// Concurrency: everything here has one owner at a time (the engine, under its lock). Wait and Wake
// are the exceptions: any goroutine may call them, without the owner's lock. The Sink is called
// only from inside the transport's Poll. A device of the invariants build reports two goroutines at
// once, as it sees every call that does something.
//
// Buffers: a payload or message that is to be sent is copied before the call returns. A receive
// buffer belongs to the device from its posting to its completion, then to the transport until
// Return; a message that the device lends instead (verbs.WC.Data) is valid while its completion is
// handled. The destination of a read belongs to the device until Sink.ReadDone, or until Abandon
// returns.
//
// "TMO 8.2" is section 8.2 of docs/tag-matching-offload.md, V1 to V19 are its invariants (7.1).
package links
