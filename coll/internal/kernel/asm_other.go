//go:build !amd64 && !arm64

package kernel

// assembly: there is none.
func assembly() []variant { return nil }
