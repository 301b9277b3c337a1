package verbs

import (
	"errors"
	"fmt"
	"syscall"
)

// Error is the error of a verb.
type Error struct {
	Op     string // "modify_qp", "post_send", ...
	Errno  syscall.Errno
	Detail string // the fault, and what to do; may be empty
}

func (e *Error) Error() string {
	if e.Detail == "" {
		return fmt.Sprintf("verbs: %s: %s", e.Op, e.Errno.Error())
	}
	return fmt.Sprintf("verbs: %s: %s: %s", e.Op, e.Detail, e.Errno.Error())
}

// Unwrap returns the errno.
func (e *Error) Unwrap() error { return e.Errno }

// Reasons why a queue pair has lost its peer, or a line has ended: AsyncEvent.Err, or Told.Err, is
// one of these where the device knows.
var (
	ErrPeerClosed  = errors.New("the peer has closed its end")
	ErrPeerEnded   = errors.New("the peer's process has ended or was killed")
	ErrPeerFailed  = errors.New("the peer's queue pair is in error")
	ErrUnreachable = errors.New("cannot connect")
	ErrRefused     = errors.New("refused") // with ErrUnreachable: for a reason at one of the two ends, not on the way
	ErrProtocol    = errors.New("protocol violation")
	ErrAccused     = errors.New("the peer has broken off, because of a protocol violation by this process")
)

// StatusError is an error status of a completion.
type StatusError struct{ Status WCStatus }

func (e *StatusError) Error() string { return "verbs: " + e.Status.String() }
