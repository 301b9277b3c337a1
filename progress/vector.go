package progress

// Receives into several buffers, as if they were one. They stay in software: a device's tag list
// takes one buffer. Reads go straight into the parts, and what was sent may lie in one.

// vector is the buffers of such a receive, in order.
type vector struct {
	parts [][]byte
	size  int // of all of them, bytes
}

// IrecvVec is Irecv into several buffers, one after the other. The outer slice is read during the
// call only.
func (e *Engine) IrecvVec(src int, tag, mask uint64, bufs [][]byte) Request {
	v := &vector{}
	for _, b := range bufs {
		if len(b) != 0 {
			v.parts = append(v.parts, b)
			v.size += len(b)
		}
	}
	if len(v.parts) <= 1 {
		var buf []byte
		if len(v.parts) == 1 {
			buf = v.parts[0]
		}
		return e.Irecv(src, tag, mask, buf)
	}
	e.mu.Lock()
	op := e.newOpLocked(noteRecv, src, tag, mask, nil)
	op.kind, op.vec = kindVector, v
	r := op.receive()
	e.mu.Unlock()
	return r
}

// room is how many bytes a receive can take, or a send has.
func (op *Op) room() int {
	if op.vec != nil {
		return op.vec.size
	}
	return len(op.buf)
}

// fill copies an eager message into a receive's buffers, as far as it fits, and returns how much.
func (op *Op) fill(payload []byte) int {
	n := copy(op.buf, payload)
	if op.vec != nil {
		n = op.vec.scatter(payload)
	}
	return n
}

func (v *vector) scatter(payload []byte) (n int) {
	for _, part := range v.parts {
		n += copy(part, payload[n:])
	}
	return n
}

// part is up to n bytes of a receive's room from offset off on, which is within it.
func (op *Op) part(off, n uint64) []byte {
	buf := op.buf
	if op.vec != nil {
		for _, buf = range op.vec.parts {
			if off < uint64(len(buf)) {
				break
			}
			off -= uint64(len(buf))
		}
	}
	n = min(n, uint64(len(buf))-off)
	return buf[off : off+n : off+n]
}

// uses tells whether an operation has bytes of buf.
func (op *Op) uses(buf []byte) bool {
	if op.vec == nil {
		return Overlap(op.buf, buf)
	}
	for _, part := range op.vec.parts {
		if Overlap(part, buf) {
			return true
		}
	}
	return false
}
