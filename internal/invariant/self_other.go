//go:build invariants && !amd64 && !arm64

package invariant

// self tells goroutines apart while they live.
func self() uintptr { return uintptr(goroutine()) }
