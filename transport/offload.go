package transport

// TagList is a device's tag list. Receives are added in posting order, subject to the overlap rule
// (docs/tag-matching-offload.md 6.3); TagSink reports how they end. The engine keeps the
// posted-receive queue.
//
// handled is C of section 5.1: the calls of Sink.Eager and Sink.Rndv so far, for ranks that the
// list covers, whose message was handled, discarded ones included. The transport adds messages that
// it discarded before the Sink.
//
// Operations reach the device in the order of the calls. Add and Sync are refused where there is no
// room (ErrAgain). Del and ForceDel have no back-pressure, as a receive that has ended must not
// stay where it can be matched: without room the transport queues them, in order and each with its
// count, and posts them in a later Poll; room for them ends a Wait. Until then Free is 0 and Add
// and Sync are refused, as they would report messages before the receives of these were removed
// (V9). An error of Del or ForceDel means that the transport has failed, and so does the next Poll;
// or that the call was wrong, as the receive is not in the list, was matched, or a Del of it is
// pending.
type TagList interface {
	// Capacity is the most receives that the list holds; Free is how many more fit now (in list and
	// operation queue).
	Capacity() int
	// Covers reports whether messages of a connected rank arrive at the device with this list. Only
	// those are matched by it and counted (TMO 6.4).
	Covers(rank int) bool
	Free() int
	// Add adds a receive. id names it in TagSink and must be unique among receives that have not
	// ended. The transport owns buf until the receive ended or ForceDel returned. ErrAgain: no room
	// now, or memory that the device cannot use; keep the receive in software.
	Add(id uint64, tag, mask uint64, buf []byte, handled uint32) error
	// Del posts a signalled DEL of receive id; TagSink.Deleted reports the outcome (section 6.6).
	// The device may match the receive until it executes the DEL. Del is an error after Matched.
	Del(id uint64, handled uint32) error
	// ForceDel posts a forced DEL of a receive that must be dormant, because an unexpected message
	// matched it (section 5.3). Call it from inside Sink.Eager or Sink.Rndv of that message, with a
	// count that may include the message. buf is free when it returns.
	ForceDel(id uint64, handled uint32) error
	// Sync posts a bare SYNC, which only reports handled (section 5.4). ErrAgain: another is
	// outstanding, or there is no room.
	Sync(handled uint32) error
}

// TagSink is the part of Sink for transports with a TagList. A receive ends with Delivered,
// Incomplete, Deleted with ok, or ForceDel. Deleted is called once for each Del, also after the
// receive's end was reported.
type TagSink interface {
	// Matched reports that the device matched receive id: unlink it from the posted-receive queue
	// now. Delivered or Incomplete follows; if the peer is lost, with an error and before PeerLost.
	// src is -1 where the message claimed a wrong source and the device does not tell the right
	// one; Delivered then has an error.
	Matched(id uint64, src int, appCtx uint32, tag uint64)
	// Delivered reports the end of a matched receive: the message has n bytes, and those that fit
	// are in its buffer. err is ErrDeregistered if the sender withdrew the message while the device
	// read it, ErrUnreadable or ErrUnwritable; any other error means that the peer is lost.
	Delivered(id uint64, n uint64, err error)
	// Incomplete reports a matched rendezvous that software has to read (section 6.7): h says where
	// the data is, and is lent. h.Extra is nil where the device does not preserve it.
	Incomplete(id uint64, h *RndvHdr)
	// Deleted reports the outcome of Del; ok is false if the device had matched the receive before.
	Deleted(id uint64, ok bool)
}
