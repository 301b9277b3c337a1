//go:build !linux

package progress

func yieldProcessor() {}
