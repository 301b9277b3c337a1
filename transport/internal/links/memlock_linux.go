package links

import (
	"errors"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// LockLimit is what to do about err, if that is a lack of memory that may be locked.
func LockLimit(err error) string {
	var limit unix.Rlimit
	switch {
	case !errors.Is(err, syscall.ENOMEM), unix.Getrlimit(unix.RLIMIT_MEMLOCK, &limit) != nil:
		return ""
	case limit.Cur == unix.RLIM_INFINITY:
		return ": the limit is the device's, as this process may lock any memory"
	}
	return fmt.Sprintf(": this process may lock %d bytes of memory (RLIMIT_MEMLOCK), raise that with \"ulimit -l\" or, for a service of "+
		"systemd, LimitMEMLOCK", limit.Cur)
}
