//go:build !linux

package wait

func yieldProcessor() {}
