package p2p

// IsendVec is Isend of several buffers, one after the other, as one message. The receiver cannot
// tell. The outer slice is read during the call only; the inner ones follow the rules of buffers.
//
// The parts are copied once more than by Isend of one buffer, as by a program that packs them: a
// message of at most Config.EagerLimit that goes at once in memory that is there. Any other, and
// all of IssendVec, take memory of the library that is less than a quarter larger than the message.
// It goes back when the request is complete, and counts against Config.SendLimit while the send
// waits.
func (c *Comm) IsendVec(dst int, tag Tag, bufs [][]byte) Request {
	if uint(dst) >= c.ranks() || tag > MaxCommTag {
		return c.refusedSend(dst, tag)
	}
	return ofSend(c.w.eng.IsendVec(c.group.world(dst), c.pack(tag), bufs), c.group, dst, tag)
}

// IssendVec is Issend of several buffers, as IsendVec.
func (c *Comm) IssendVec(dst int, tag Tag, bufs [][]byte) Request {
	if uint(dst) >= c.ranks() || tag > MaxCommTag {
		return c.refusedSend(dst, tag)
	}
	return ofSend(c.w.eng.IssendVec(c.group.world(dst), c.pack(tag), bufs), c.group, dst, tag)
}

// IrecvVec is Irecv into several buffers, which the message fills one after the other; they must
// not overlap. The outer slice and the inner ones follow the rules of buffers: they stay as they
// are until the request is complete. Parts are filled from where the message lies, or, those of a
// message above Config.EagerLimit, by way of up to 512 KiB of the library; long ones are read
// straight into. Where more than one buffer is not empty the receive is never offloaded.
func (c *Comm) IrecvVec(src int, tag Tag, bufs [][]byte) Request {
	from, want, mask, ok := c.wanted(src, tag)
	if !ok {
		return c.refusedRecv(src, tag)
	}
	return ofRecv(c.w.eng.IrecvVec(from, want, mask, bufs), c.group, src, tag)
}
