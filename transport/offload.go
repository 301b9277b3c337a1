package transport

// TagList is a device's tag list: receives are offered to it in posting order, subject to the overlap rule
// (docs/tag-matching-offload.md 6.3), and come back through TagSink. The engine keeps the shadow list.
type TagList interface {
	// Capacity is the number of receives the list holds at most; Free how many more fit now (list and operation queue).
	Capacity() int
	Free() int
	// Add offers a receive. id names it in TagSink. handled is the count C of unexpected messages completely handled
	// (section 5.1). ErrAgain: full, keep the receive in software.
	Add(id uint64, tag, mask uint64, buf []byte, handled uint32) error
	// Del asks for receive id to be taken out, signalled; TagSink.Deleted reports the outcome (section 6.6).
	Del(id uint64, handled uint32) error
	// Drop takes out a receive that is known to be dormant, because an unexpected message matched it (section 5.3).
	Drop(id uint64, handled uint32) error
	// Sync reports handled without another operation (section 5.4).
	Sync(handled uint32) error
}

// TagSink is the part of Sink that a transport with a TagList calls.
type TagSink interface {
	// Matched reports that the device gave receive id to a message: unlink it from the shadow list now.
	Matched(id uint64, src int, appCtx uint32, tag uint64)
	// Delivered reports the end of a matched receive: n payload bytes are in its buffer.
	Delivered(id uint64, n uint64, err error)
	// Incomplete reports a matched rendezvous that the device left to software: h says where the data is (section 6.7).
	Incomplete(id uint64, h *RndvHdr)
	// Deleted reports the outcome of Del: ok false means that the device had matched the receive before.
	Deleted(id uint64, ok bool)
}
