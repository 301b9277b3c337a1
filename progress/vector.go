package progress

// Messages of several parts, as if they were one: sends are gathered (gather.go), and receives are
// filled from where the message lies, or as it is read (scatter.go). Such a receive stays in
// software: a device's tag list takes one buffer.

// vector is what an operation with several parts has beside, or a receive instead of, a buffer.
type vector struct {
	parts [][]byte // of a receive, in order
	size  int      // of all parts, bytes; below 0: it was not asked for yet
	whole *whole   // the buffer of a send that did not go at once
	scattering
}

const keptVectors = 64 // in the pool, where they refer to nothing of the program

// IsendVec is Isend of several buffers, one after the other, as one message. The outer slice is
// read during the call only.
func (e *Engine) IsendVec(dst int, tag uint64, parts [][]byte) Request {
	if len(parts) == 1 {
		return e.Isend(dst, tag, parts[0])
	}
	if n := len(parts); n > 0 && n*min(len(parts[0]), len(parts[n-1])) > e.cfg.EagerLimit {
		// Of like parts, these would be gathered in vain.
		return e.sendWhole(dst, tag, parts, false)
	}
	e.mu.Lock()
	if n, ok := gather(e.gathered, parts); ok && e.sendNowLocked(dst, tag, e.gathered[:n]) {
		op := e.sentLocked(dst, tag, e.gathered[:n])
		op.note.vector(parts)
		r := op.request()
		e.mu.Unlock()
		return r
	}
	e.mu.Unlock()
	return e.sendWhole(dst, tag, parts, false)
}

// IssendVec is IsendVec that completes when the message is matched.
func (e *Engine) IssendVec(dst int, tag uint64, parts [][]byte) Request {
	if len(parts) == 1 {
		return e.Issend(dst, tag, parts[0])
	}
	return e.sendWhole(dst, tag, parts, true)
}

// sendWhole sends what does not go at once, from memory of its own.
func (e *Engine) sendWhole(dst int, tag uint64, parts [][]byte, sync bool) Request {
	size := sizeOf(parts)
	w, err := newWhole(parts, size)
	if err != nil {
		return Failed(err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	op := e.newSendLocked(noteSend, dst, tag, w.buf[:size])
	op.takeVector(nil, size)
	op.note.vector(parts)
	op.sync, op.vec.whole = sync, w
	r := op.request()
	op.isend()
	e.leaveLocked()
	return r
}

// IrecvVec is Irecv into several buffers, one after the other. The outer slice is kept until the
// receive ends.
func (e *Engine) IrecvVec(src int, tag, mask uint64, parts [][]byte) Request {
	if buf, ok := single(parts); ok {
		return e.Irecv(src, tag, mask, buf)
	}
	e.mu.Lock()
	op := e.newOpLocked(noteRecv, src, tag, mask, nil)
	op.note.vector(parts)
	r := op.request()
	if m, ok := e.unexp.Match(tag, mask); ok && !m.Rndv {
		op.complete(e.peers[m.Src].took(m, scatter(parts, m.Data)))
	} else {
		op.kind = kindVector
		op.takeVector(parts, -1)
		if ok {
			op.pull(m)
		} else {
			op.await()
		}
	}
	e.leaveLocked()
	e.mu.Unlock()
	return r
}

// single is the only part that is not empty; nil where all are.
func single(parts [][]byte) (buf []byte, ok bool) {
	for _, part := range parts {
		if len(part) == 0 {
			continue
		}
		if buf != nil {
			return nil, false
		}
		buf = part
	}
	return buf, true
}

// takeVector makes parts the buffer of a new operation.
func (op *Op) takeVector(parts [][]byte, size int) {
	v := op.e.vectors.take()
	v.parts, v.size = parts, size
	op.vec = v
}

// dropVector gives back what an operation that has ended had of takeVector.
func (op *Op) dropVector() {
	e, v := op.e, op.vec
	op.vec = nil
	if v.size >= 0 { // else it was an eager message for a receive
		v.dropMemory(e)
	}
	v.parts, v.size = nil, 0
	e.vectors.drop(v)
}

// dropMemory gives back the engine's memory that an operation has.
func (v *vector) dropMemory(e *Engine) {
	for _, s := range v.stages {
		if s != nil {
			s.read = 0
			e.stages.drop(s)
		}
	}
	if v.whole != nil {
		v.whole.drop()
	}
	v.whole, v.scattering = nil, scattering{}
}

// room is how many bytes a receive can take, or a send has.
func (op *Op) room() int {
	v := op.vec
	if v == nil {
		return len(op.buf)
	}
	if v.size < 0 {
		v.size = sizeOf(v.parts)
	}
	return v.size
}

// fill copies an eager message into a receive's buffers, as far as it fits, and returns how much.
func (op *Op) fill(payload []byte) int {
	if op.vec != nil {
		return scatter(op.vec.parts, payload)
	}
	return copy(op.buf, payload)
}

// uses reports whether an operation has bytes of buf.
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
