package main

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestProfile: the programs that measure are built with one and the same profile, so that what they
// say can be compared.
func TestProfile(t *testing.T) {
	profile, err := os.ReadFile("default.pgo")
	require.NoError(t, err)
	for _, program := range []string{"pingpong", "bandwidth"} {
		other, err := os.ReadFile("../examples/" + program + "/default.pgo")
		require.NoError(t, err)
		require.Equal(t, profile, other, "run bench/profile.sh, which renews all of them: examples/%s", program)
	}
}
