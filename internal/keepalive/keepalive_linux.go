package keepalive

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// setRetries keeps the pauses between retransmissions, which double, to an eighth of the limit: one
// must get through in the time that is left after a cut. Kernels before 6.15 do not have it; theirs
// seldom are too long.
func setRetries(fd int, limit time.Duration) {
	_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_RTO_MAX_MS, int(max(limit/8, time.Second)/time.Millisecond))
}

func setUserTimeout(fd int, limit time.Duration) error {
	return os.NewSyscallError("setsockopt", unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(limit/time.Millisecond)))
}
