//go:build !linux

package links

// LockLimit is in memlock_linux.go: devices that lock memory are there only.
func LockLimit(error) string { return "" }
