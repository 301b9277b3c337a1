//go:build amd64 || arm64

package spin

// Pause tells the processor that its caller polls: what shares a core with it, a thread of the peer
// perhaps, gets more of that core meanwhile. It takes some 20 ns.
func Pause()
