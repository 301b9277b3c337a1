//go:build !race

package sim

const effort = 1
