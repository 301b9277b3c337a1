package p2p

import "bytes"

// IsendVec is Isend of several buffers, one after the other, as one message. The receiver cannot
// tell. The outer slice is read during the call only; the inner ones follow the rules of buffers.
//
// The parts are gathered in memory of the library, which takes as much as the message until the
// request is complete, beside what Config.SendLimit counts.
func (c *Comm) IsendVec(dst int, tag Tag, bufs [][]byte) Request {
	return c.Isend(dst, tag, gathered(bufs))
}

// gathered is all parts in one buffer: that part itself, if there is only one.
func gathered(bufs [][]byte) []byte {
	if len(bufs) == 1 {
		return bufs[0]
	}
	return bytes.Join(bufs, nil)
}

// IssendVec is Issend of several buffers, as IsendVec.
func (c *Comm) IssendVec(dst int, tag Tag, bufs [][]byte) Request {
	return c.Issend(dst, tag, gathered(bufs))
}

// IrecvVec is Irecv into several buffers, which the message fills one after the other. The outer
// slice is read during the call only; the inner ones follow the rules of buffers. Messages above
// Config.EagerLimit are read straight into the parts, which must not overlap, each by itself: of
// many parts of a few KiB that takes longer than a receive into one buffer and a copy. Such a
// receive is never offloaded.
func (c *Comm) IrecvVec(src int, tag Tag, bufs [][]byte) Request {
	from, want, mask, ok := c.wanted(src, tag)
	if !ok {
		return c.refusedRecv(c.w.eng, src, tag)
	}
	return ofRecv(c.w.eng.IrecvVec(from, want, mask, bufs), c.group, src, tag)
}
