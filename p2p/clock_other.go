//go:build !linux

package p2p

// monotonic is 0: there is no clock that all processes of a host share.
func monotonic() int64 { return 0 }
