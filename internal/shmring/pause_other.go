//go:build !amd64 && !arm64

package shmring

// Pause does nothing on this processor.
func Pause() {}
