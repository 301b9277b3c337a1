package verbs

import (
	"fmt"
	"syscall"
)

// Error is a failed verb: what was called, the errno that libibverbs would give, and what was wrong.
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
