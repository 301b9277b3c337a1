//go:build !amd64 && !arm64

package spin

// Pause does nothing on this processor.
func Pause() {}
