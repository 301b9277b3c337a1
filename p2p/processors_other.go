//go:build !linux

package p2p

func processors() cpuSet { return nil }
