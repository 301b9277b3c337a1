//go:build invariants && !amd64 && !arm64

package invariant

// self identifies the calling goroutine while it lives.
func self() uintptr { return uintptr(goroutine()) }
