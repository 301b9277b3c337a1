package p2p

import (
	"context"

	"github.com/tagmatch/tagmatch/progress"
)

// Message is a message that a matched probe has taken: no other receive or probe can get it,
// whatever other goroutines do. Exactly one of Recv, Irecv and Discard must be called on it: an
// eager message takes memory here, and its sender's credit, until then, and a larger one keeps its
// Send waiting. A second of these calls is ErrInactive.
//
// If its sender is lost, a message whose bytes are here can still be received; any other fails with
// a *PeerError. A sender whose context ends takes back what is not here: Recv is then ErrInactive.
// After Close of the World all fail with ErrClosed.
//
// The Message of a probe with ProcNull as the source is empty, and may be received any number of
// times. Probes make Messages; the zero value is not one.
type Message struct {
	_     noCopy
	m     *progress.Message // nil: of ProcNull
	group *group            // of its Comm, for the status and errors
	st    Status
	eng   *progress.Engine // of a Message of ProcNull
}

// Status says what the message is, also after it was received.
func (m *Message) Status() Status { return m.st }

// Bytes lends an eager message where it lies, without a copy: they may be read until Recv, Irecv or
// Discard, and not written. It is nil for a message that has not been transferred, which is one
// above Config.EagerLimit or of a synchronous send, and after those calls.
func (m *Message) Bytes() []byte {
	if m.m == nil {
		return nil
	}
	return m.m.Bytes()
}

// Recv receives the message into buf, as World.Recv does: a shorter buf is ErrTruncated. If ctx has
// ended already nothing happens, and the message can still be received. If it ends during the
// transfer, the message is as if no probe had taken it: the next receive that matches gets it, and
// this Message is used up.
func (m *Message) Recv(ctx context.Context, buf []byte) (Status, error) {
	switch {
	case ctx == nil:
		return nothing, m.fault(errNoContext)
	case m.m == nil && ctx.Err() != nil:
		return nothing, m.fault(ctx.Err())
	case m.m == nil:
		return nothing, nil
	}
	st, err := m.m.Recv(ctx, buf)
	if err != nil {
		return failedStatus(st, m.group, err), m.fault(err)
	}
	return m.st, nil
}

// Irecv is the nonblocking Recv: the request ends when the message is in buf.
func (m *Message) Irecv(buf []byte) Request {
	if m.m == nil {
		return ofRecv(m.eng.Null(), nil, ProcNull, AnyTag)
	}
	return ofRecv(m.m.Irecv(buf), m.group, m.st.Source, m.st.Tag)
}

// Discard receives the message without its bytes: the operation of its sender succeeds. It does
// nothing where the message was received before.
func (m *Message) Discard() {
	if m.m != nil {
		m.m.Discard()
	}
}

// fault wraps an error of Recv.
func (m *Message) fault(err error) error {
	return opError(opRecv, m.st.Source, m.st.Tag, m.group, err)
}
