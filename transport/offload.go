package transport

// TagList is a device's tag list: receives are offered to it in posting order, subject to the
// overlap rule (docs/tag-matching-offload.md 6.3), and come back through TagSink. The engine keeps
// the shadow list.
//
// The count that these calls take, C of section 5.1, is that of the calls of Sink.Eager and
// Sink.Rndv, for ranks that the list covers, that are done with, also of messages that the engine
// chose to ignore; what never got so far is the transport's to count.
//
// Operations reach the device in the order of the calls. Add and Sync are refused where there is no
// room. Del and Drop are never: there is no back-pressure, as a receive that has ended must not
// stay where it can be matched. What finds no room is queued by the transport, in order and with
// the count that it came with, and goes with a Poll once there is some, which also ends a Wait.
// Until then Free is 0, and Add and Sync are refused: they would tell of messages before the
// receives that these have found are taken out (V9). An error of Del or Drop means that the
// transport is broken, and the next Poll fails; or that the caller is, where the receive is not in
// the list, is matched, or was deleted before.
type TagList interface {
	// Capacity is the number of receives the list holds at most; Free how many more fit now (list
	// and operation queue).
	Capacity() int
	// Covers reports whether the messages of a rank, once it is connected, come by the device with
	// this list. Only those are matched by it, and only those are counted (TMO 6.4).
	Covers(rank int) bool
	Free() int
	// Add offers a receive. id names it in TagSink: it must differ from those that have not ended.
	// The transport has buf until the receive ended or Drop returned. ErrAgain: no room now, or
	// memory that the device cannot use; keep the receive in software.
	Add(id uint64, tag, mask uint64, buf []byte, handled uint32) error
	// Del asks for receive id to be taken out, signalled; TagSink.Deleted reports the outcome
	// (section 6.6). Never refused for want of room. The device may match the receive until it has
	// the operation. It is an error after Matched.
	Del(id uint64, handled uint32) error
	// Drop takes out a receive that is known to be dormant, because an unexpected message matched
	// it (section 5.3): call it from inside Sink.Eager or Sink.Rndv of that message, with a count
	// that may include it. Never refused for want of room; buf is free when it returns. After Del
	// it stands for that, and Deleted is not called.
	Drop(id uint64, handled uint32) error
	// Sync reports handled without another operation (section 5.4). ErrAgain: another is under way,
	// or no room.
	Sync(handled uint32) error
}

// TagSink is the part of Sink that a transport with a TagList calls. A receive ends with Delivered,
// Incomplete, Deleted with ok, or Drop. Deleted is called once for each Del, also if the receive's
// end was reported before it.
type TagSink interface {
	// Matched reports that the device gave receive id to a message: unlink it from the shadow list
	// now. Delivered or Incomplete follows, with an error at the latest when the peer is lost, and
	// before PeerLost. src is -1 where a message lied about its source and the device does not
	// tell; Delivered then has an error.
	Matched(id uint64, src int, appCtx uint32, tag uint64)
	// Delivered reports the end of a matched receive: the message has n bytes, and those that fit
	// are in its buffer. err is ErrWithdrawn if the sender took the message back while the device
	// read it; any other means the peer's loss.
	Delivered(id uint64, n uint64, err error)
	// Incomplete reports a matched rendezvous that is left to software: h says where the data is
	// (section 6.7), and is lent. h.Extra is nil where the device lost it.
	Incomplete(id uint64, h *RndvHdr)
	// Deleted reports the outcome of Del: ok false means that the device had matched the receive
	// before.
	Deleted(id uint64, ok bool)
}
