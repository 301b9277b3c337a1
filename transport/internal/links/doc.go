// Package links is what transports over RC queue pairs have in common: the connections to the ranks
// that this one talks to, with everything that is posted to them and received from them. Transport
// rc and transport tmsrq are built on it and do not know each other.
//
// A connection is made at the first message. Both ends tell each other what it takes, by the line
// of their devices (verbs.Device.Tell): type handshake says in which order, type connector does it.
// Of a rank never talked to there is a pointer, and the address of its device, a part of what
// Connect was given. An end that refuses a connection, or has lost one, tells the other one why
// (END), unless the line has ended.
//
// Type Links posts, polls and handles completions. Its parts have the rest, with methods of their
// own:
//
//	objects    what a transport needs of its device: protection domain, queues, SRQ, queue pairs
//	roster     the link to each rank, and the cells of their credit
//	directory  which rank has which device
//	connector  the connections that are being made
//	lines      what devices are told: HELLO, READY and END
//	losses     the links that have ended, up to the report of their loss
//	budget     how many send requests may be outstanding
//	ring, Pool, reads, regions, grants
//	           receive buffers, bounce buffers, outstanding RDMA READs, memory regions, due credit
//
// A transport adds what it does with a completion: it embeds Links, which has most methods of
// transport.Transport, and writes Poll.
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
