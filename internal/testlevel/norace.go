//go:build !race

package testlevel

const race = false
