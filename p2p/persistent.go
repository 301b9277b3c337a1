package p2p

import "sync"

// Persistent is an operation with its arguments, to be started again and again. It has a type of
// its own, so that a Request has one life only: each Start gives a new one. It holds nothing that
// needs to be freed. SendInit, SsendInit and RecvInit make one; the zero value is not one.
type Persistent struct {
	_    noCopy
	c    *Comm // constant, as all up to buf
	kind initKind
	peer int
	tag  Tag
	buf  []byte

	mu   sync.Mutex
	last Request // that was started last; guarded by mu
}

type initKind uint8

const (
	initSend initKind = iota
	initSsend
	initRecv
)

// SendInit, SsendInit and RecvInit prepare an Isend, Issend or Irecv with these arguments, which
// Start begins. The buffer is the library's from each Start until that request is reported
// complete, and the program's at all other times. Wrong arguments are reported by the requests of
// Start.
func (c *Comm) SendInit(dst int, tag Tag, buf []byte) *Persistent {
	return &Persistent{c: c, kind: initSend, peer: dst, tag: tag, buf: buf}
}

// SsendInit is SendInit for a send that is complete when its message is matched.
func (c *Comm) SsendInit(dst int, tag Tag, buf []byte) *Persistent {
	return &Persistent{c: c, kind: initSsend, peer: dst, tag: tag, buf: buf}
}

// RecvInit is SendInit for a receive. src may be AnySource, and tag AnyTag.
func (c *Comm) RecvInit(src int, tag Tag, buf []byte) *Persistent {
	return &Persistent{c: c, kind: initRecv, peer: src, tag: tag, buf: buf}
}

// Start begins the operation. The Request is ErrInvalid, and nothing begins, while the request of
// the last Start has not been reported complete, by Wait, Test or a Queue; one that was given up by
// Free counts until its operation has ended.
func (p *Persistent) Start() Request {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.last.r.Reported() {
		op := opSend
		if p.kind == initRecv {
			op = opRecv
		}
		return failedRequest(op, p.peer, p.tag, &OpError{op, p.peer, p.tag, errStarted, p.c.group})
	}
	switch p.kind {
	case initSend:
		p.last = p.c.Isend(p.peer, p.tag, p.buf)
	case initSsend:
		p.last = p.c.Issend(p.peer, p.tag, p.buf)
	case initRecv:
		p.last = p.c.Irecv(p.peer, p.tag, p.buf)
	}
	return p.last
}

var errStarted = invalidf("the request of the last Start has not been reported complete: wait for it first")
