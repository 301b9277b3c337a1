//go:build invariants && (amd64 || arm64)

package invariant

// self tells goroutines apart while they live. It is the address of the runtime's record: asking
// for the number takes a stack trace, a hundred times as long.
func self() uintptr
