//go:build !arm64

package abi

const mutexWords = 5
