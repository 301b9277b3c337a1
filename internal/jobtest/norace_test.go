//go:build !race

package jobtest

const effort = 1
