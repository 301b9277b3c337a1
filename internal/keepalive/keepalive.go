// Package keepalive makes the kernel detect that the host at the other end of a TCP connection, or
// the way to it, is gone.
//
// Concurrency: all functions may be called at any time by any goroutine.
package keepalive

import (
	"errors"
	"fmt"
	"net"
	"time"
)

// Min is the shortest time for Idle and All. The kernel counts in seconds; after an interruption of
// half of it there must be time for a probe, for finding the host again, and for one probe that was
// not sent just before the interruption.
const Min = 6 * time.Second

// Idle ends conn when its other end, with nothing to be sent, has been silent for limit. A stopped
// process does not count: its kernel answers.
func Idle(conn net.Conn, limit time.Duration) error {
	tc, ok := conn.(*net.TCPConn)
	if !ok {
		return fmt.Errorf("keepalive: a %T: %w", conn, errors.ErrUnsupported)
	}
	if err := tc.SetKeepAliveConfig(config(limit)); err != nil {
		return fmt.Errorf("keepalive: %w", err)
	}
	return control(tc, func(fd int) error {
		setRetries(fd, limit)
		return nil
	})
}

// All is Idle and, on Linux, also ends conn when sent data was not acknowledged, or not read by the
// process there, for limit: for connections whose ends read all the time.
func All(conn net.Conn, limit time.Duration) error {
	if err := Idle(conn, limit); err != nil {
		return err
	}
	return control(conn.(*net.TCPConn), func(fd int) error { return setUserTimeout(fd, limit) })
}

// config probes after an eighth of the time, and then as often as fits.
func config(limit time.Duration) net.KeepAliveConfig {
	every := max(limit/8, time.Second).Truncate(time.Second)
	return net.KeepAliveConfig{Enable: true, Idle: every, Interval: every, Count: max(int(limit/every)-1, 1)}
}

func control(conn *net.TCPConn, f func(fd int) error) error {
	raw, err := conn.SyscallConn()
	if err == nil {
		cerr := raw.Control(func(fd uintptr) { err = f(int(fd)) })
		err = errors.Join(cerr, err)
	}
	if err != nil {
		return fmt.Errorf("keepalive: %w", err)
	}
	return nil
}
