package progress

// Receives into several buffers, as if they were one. They stay in software: a device's tag list
// takes one buffer. Reads go straight into the parts, and what was sent may lie in one.

// vector is the buffers of such a receive, in order.
type vector struct {
	parts [][]byte
	size  int // of all of them, bytes

	// The part that was asked for last, and its offset in the whole: the next one is near.
	at   int
	base uint64
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
	r := op.request()
	op.receive()
	e.leaveLocked()
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
		if n == len(payload) {
			break
		}
		n += copy(part, payload[n:])
	}
	return n
}

// find gives the bytes from offset off on of the part that has it.
func (v *vector) find(off uint64) []byte {
	if off < v.base {
		v.at, v.base = 0, 0
	}
	for off-v.base >= uint64(len(v.parts[v.at])) {
		v.base += uint64(len(v.parts[v.at]))
		v.at++
	}
	return v.parts[v.at][off-v.base:]
}

// part is up to n bytes of a receive's room from offset off on, which is within it.
func (op *Op) part(off, n uint64) []byte {
	var buf []byte
	if op.vec != nil {
		buf = op.vec.find(off)
	} else {
		buf = op.buf[off:]
	}
	n = min(n, uint64(len(buf)))
	return buf[:n:n]
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
