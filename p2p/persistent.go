package p2p

import (
	"slices"
	"sync"
)

// Persistent is an operation with its arguments, to be started again and again. It has a type of
// its own, so that a Request has one life only: each Start gives a new one. It holds nothing that
// needs to be freed. SendInit and its like make one; the zero value is not one.
type Persistent struct {
	_     noCopy
	group *group // of its Comm; constant, as all up to start
	op    string
	peer  int
	tag   Tag
	start func() Request

	mu   sync.Mutex
	last Request // that was started last; guarded by mu
}

// SendInit, SsendInit and RecvInit prepare an Isend, Issend or Irecv with these arguments, which
// Start begins. The buffer is the library's from each Start until that request is reported
// complete, and the program's at all other times. Wrong arguments are reported by the requests of
// Start. SendInitVec, SsendInitVec and RecvInitVec do so with several buffers.
func (c *Comm) SendInit(dst int, tag Tag, buf []byte) *Persistent {
	return c.persistent(opSend, dst, tag, func() Request { return c.Isend(dst, tag, buf) })
}

// SsendInit is SendInit for a send that is complete when its message is matched.
func (c *Comm) SsendInit(dst int, tag Tag, buf []byte) *Persistent {
	return c.persistent(opSend, dst, tag, func() Request { return c.Issend(dst, tag, buf) })
}

// RecvInit is SendInit for a receive. src may be AnySource, and tag AnyTag.
func (c *Comm) RecvInit(src int, tag Tag, buf []byte) *Persistent {
	return c.persistent(opRecv, src, tag, func() Request { return c.Irecv(src, tag, buf) })
}

// SendInitVec is SendInit of several buffers, see IsendVec.
func (c *Comm) SendInitVec(dst int, tag Tag, bufs [][]byte) *Persistent {
	bufs = slices.Clone(bufs)
	return c.persistent(opSend, dst, tag, func() Request { return c.IsendVec(dst, tag, bufs) })
}

// SsendInitVec is SsendInit of several buffers, as SendInitVec.
func (c *Comm) SsendInitVec(dst int, tag Tag, bufs [][]byte) *Persistent {
	bufs = slices.Clone(bufs)
	return c.persistent(opSend, dst, tag, func() Request { return c.IssendVec(dst, tag, bufs) })
}

// RecvInitVec is RecvInit into several buffers, see IrecvVec.
func (c *Comm) RecvInitVec(src int, tag Tag, bufs [][]byte) *Persistent {
	bufs = slices.Clone(bufs)
	return c.persistent(opRecv, src, tag, func() Request { return c.IrecvVec(src, tag, bufs) })
}

func (c *Comm) persistent(op string, peer int, tag Tag, start func() Request) *Persistent {
	return &Persistent{group: c.group, op: op, peer: peer, tag: tag, start: start}
}

// Start begins the operation. The Request is ErrInvalid, and nothing begins, while the request of
// the last Start has not been reported complete, by Wait, Test or a Queue; one that was given up by
// Free counts until its operation has ended.
func (p *Persistent) Start() Request {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.last.r.Reported() {
		return failedRequest(p.op, p.peer, p.tag, &OpError{p.op, p.peer, p.tag, errStarted, p.group})
	}
	p.last = p.start()
	return p.last
}

var errStarted = invalidf("the request of the last Start has not been reported complete: wait for it first")
