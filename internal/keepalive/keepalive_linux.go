package keepalive

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// setRetries bounds the pauses between retransmissions, which double, to an eighth of the limit:
// one must get through in the time that is left after an interruption of half of it. Kernels before
// 6.15 lack this. There a pause is at most as long as the time before it, so that an interruption
// of a third leaves enough time.
func setRetries(fd int, limit time.Duration) {
	_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_RTO_MAX_MS, int(max(limit/8, time.Second)/time.Millisecond))
}

func setUserTimeout(fd int, limit time.Duration) error {
	return os.NewSyscallError("setsockopt", unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(limit/time.Millisecond)))
}
