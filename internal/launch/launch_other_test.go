//go:build !linux

package launch

import "testing"

func ignoreTerm() {}

func nested(string) int { return 0 }

func requireGone(*testing.T, []int) {}
