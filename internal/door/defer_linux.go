package door

import (
	"net"

	"golang.org/x/sys/unix"
)

// hush leaves connections over which nothing has come to the kernel, for about as long as Patience:
// however many there are, they do not stand before those that greet.
func hush(l net.Listener) {
	control(l, func(fd int) { // fails for Unix sockets
		_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_DEFER_ACCEPT, 1)
	})
}
