package verbs

import (
	"errors"
	"fmt"
	"syscall"
)

// Error is a failed verb: what was called, the errno that libibverbs would give, and what was
// wrong.
type Error struct {
	Op     string // "modify_qp", "post_send", ...
	Errno  syscall.Errno
	Detail string // what was wrong and what to do; may be empty
}

func (e *Error) Error() string {
	if e.Detail == "" {
		return fmt.Sprintf("verbs: %s: %s", e.Op, e.Errno.Error())
	}
	return fmt.Sprintf("verbs: %s: %s: %s", e.Op, e.Detail, e.Errno.Error())
}

// Unwrap gives the errno.
func (e *Error) Unwrap() error { return e.Errno }

// What has become of a queue pair's peer: AsyncEvent.Err is one of these where the device knows.
var (
	ErrPeerClosed  = errors.New("the peer has destroyed its queue pair")
	ErrPeerEnded   = errors.New("the peer's process has ended or was killed")
	ErrPeerFailed  = errors.New("the peer's queue pair is in error")
	ErrUnreachable = errors.New("cannot connect")
)

// StatusError is a completion's status as an error.
type StatusError struct{ Status WCStatus }

func (e *StatusError) Error() string { return "verbs: " + e.Status.String() }
