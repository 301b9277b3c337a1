//go:build !linux

package bootstrap

import (
	"errors"
	"net"
)

// inheritListener is for Linux, whose launcher hands sockets over.
func inheritListener(int) (net.Listener, error) {
	return nil, errors.New("not supported on this system")
}
