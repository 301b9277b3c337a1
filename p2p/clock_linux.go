package p2p

import "golang.org/x/sys/unix"

// monotonic is a clock that all processes of a host share, in ns; 0 where there is none.
func monotonic() int64 {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) != nil {
		return 0
	}
	return t.Nano()
}
