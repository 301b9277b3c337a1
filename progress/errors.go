package progress

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/tagmatch/tagmatch/internal/ranks"
	"github.com/tagmatch/tagmatch/transport"
)

// Conditions to test with errors.Is. Package p2p gives them to its users under its own names. The
// texts of this package's errors name no package: p2p puts its name in front of what it returns.
var (
	ErrTruncated      = errors.New("message longer than the buffer")
	ErrCanceled       = errors.New("operation canceled by Cancel")
	ErrMaybeDelivered = errors.New("receiver did not answer and may have the message")
	ErrPeerLost       = errors.New("peer lost")
	ErrAborted        = errors.New("job aborted")
	ErrClosed         = errors.New("world closed")
	ErrFull           = errors.New("limit reached")
	ErrInactive       = errors.New("request already completed")
	ErrInvalid        = errors.New("invalid argument")
	ErrFault          = errors.New("memory cannot be accessed")
	ErrProtocol       = transport.ErrProtocol
)

// ErrQueueClosed is the ErrClosed of a Queue.
var ErrQueueClosed error = queueClosed{}

type queueClosed struct{}

func (queueClosed) Error() string { return "queue closed" }
func (queueClosed) Unwrap() error { return ErrClosed }

// truncation is the ErrTruncated of a receive.
type truncation struct{ length, room uint64 }

func (t *truncation) Error() string {
	return fmt.Sprintf("%v: %d bytes into %d", ErrTruncated, t.length, t.room)
}
func (t *truncation) Unwrap() error { return ErrTruncated }

// errWithdrawn ends the receive of a Message whose sender has withdrawn it.
var errWithdrawn error = withdrawn{}

type withdrawn struct{}

func (withdrawn) Error() string { return "the sender has withdrawn the message" }
func (withdrawn) Unwrap() error { return ErrInactive }

// errRevoked ends a send whose buffer was deregistered; finishedLocked adds the context's error.
var errRevoked = errors.New("send revoked")

// PeerError is in the chain of every error that a lost rank causes. With errors.Is its Cause is
// none of what tells of the caller's own doing: the end of a context, a Cancel, a Close. A
// connection that timed out is not the caller's deadline.
type PeerError struct {
	Ranks []int
	Cause error
}

func (e *PeerError) Error() string {
	s := ranks.List(e.Ranks) + " lost"
	if e.Cause != nil {
		s += ": " + e.Cause.Error()
	}
	return s
}

func (e *PeerError) Is(target error) bool { return target == ErrPeerLost }

func (e *PeerError) Unwrap() error {
	if e.Cause == nil {
		return nil
	}
	return lossCause{e.Cause}
}

// lossCause is the Cause of a PeerError without ownErrors.
type lossCause struct{ err error }

// ownErrors are the errors that tell of what the caller itself did.
var ownErrors = []error{context.DeadlineExceeded, context.Canceled, os.ErrDeadlineExceeded, ErrCanceled, ErrMaybeDelivered, ErrClosed}

func (c lossCause) Error() string      { return c.err.Error() }
func (c lossCause) As(target any) bool { return errors.As(c.err, target) }
func (c lossCause) Is(target error) bool {
	return !slices.Contains(ownErrors, target) && errors.Is(c.err, target)
}

// peerError is the error of an operation that rank's loss ends.
func peerError(rank int, cause error) error {
	return &PeerError{Ranks: []int{rank}, Cause: cause}
}

// protocolError says what a peer did wrong.
func protocolError(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrProtocol, fmt.Sprintf(format, args...))
}
