//go:build !linux

package bootstrap

import (
	"errors"
	"net"
)

// inheritListener is implemented on Linux, whose launcher passes sockets on.
func inheritListener(int) (net.Listener, error) {
	return nil, errors.New("not supported on this system")
}
