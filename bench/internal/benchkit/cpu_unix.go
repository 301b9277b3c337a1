//go:build unix

package benchkit

import (
	"fmt"
	"syscall"
	"time"
)

// processorTime is what this process has used so far, in user and kernel mode.
func processorTime() (time.Duration, error) {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0, fmt.Errorf("getrusage: %w", err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), nil
}
