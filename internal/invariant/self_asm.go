//go:build invariants && (amd64 || arm64)

package invariant

// self identifies the calling goroutine while it lives, by the address of the runtime's record: its
// number would take a stack trace, a hundred times as long.
func self() uintptr
