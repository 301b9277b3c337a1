//go:build !linux

package p2p

func processors() []int { return nil }
