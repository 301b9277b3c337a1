package progress

// Poster posts many operations of one engine, with one hold of the lock for many. Its methods are
// of one goroutine, which calls nothing else of the engine before Done.
type Poster struct {
	e *Engine
	n int // how many were posted with this hold
}

// postBatch is how many operations are posted before others may have the lock.
const postBatch = takeBatch

// Poster takes the lock, and lets go of it at Done.
func (e *Engine) Poster() Poster {
	e.mu.Lock()
	return Poster{e: e}
}

// Isend is Engine.Isend. Eager messages to one rank that follow each other are posted as a chain:
// so the request, with that mark, is in out at the end of Done, or before.
func (p *Poster) Isend(dst int, tag uint64, buf []byte, mark uint32, out *Request) {
	e := p.e
	if p.turn(); !p.add(dst, tag, buf, mark, out) {
		p.post()
		*out = e.isendLocked(dst, tag, buf).Mark(mark)
	}
}

// Irecv is Engine.Irecv.
func (p *Poster) Irecv(src int, tag, mask uint64, buf []byte) Request {
	p.turn()
	op := p.e.newOpLocked(noteRecv, src, tag, mask, buf)
	r := op.request()
	op.receive()
	return r
}

// turn lets others have the lock after each batch.
func (p *Poster) turn() {
	if p.n++; p.n > postBatch {
		p.yield()
	}
}

func (p *Poster) yield() {
	p.Done()
	p.e.mu.Lock()
	p.n = 1
}

// Done ends the use of the lock.
func (p *Poster) Done() {
	p.post()
	p.e.leaveLocked()
	p.e.mu.Unlock()
}
