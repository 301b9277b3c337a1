//go:build !linux

package doors

import "net"

const supported = false

func peer(*net.UnixConn) (uid, pid int, err error) { return 0, 0, errUnsupported }

// Find finds no doors on this system.
func Find() ([]Name, error) { return nil, errUnsupported }

// Process is of a system that has doors.
func Process(int) string { return errUnsupported.Error() }

// Runs is of a system that has doors.
func (n Name) Runs() bool { return false }
