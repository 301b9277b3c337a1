package bootstrap

import (
	"context"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestSecretLeavesTheEnvironment: programs that a rank starts do not get the job's secret, which
// later calls in the rank's own process find all the same.
func TestSecretLeavesTheEnvironment(t *testing.T) {
	t.Setenv(EnvBootstrap, "singleton")
	t.Setenv(EnvSecret, hexSecret)
	defer taken.Store(nil)
	for range 2 {
		found, err := Inspect(Options{})
		require.NoError(t, err)
		require.Equal(t, EnvSecret, found.SecretOrigin)
		b, err := Detect(context.Background(), Options{})
		require.NoError(t, err)
		require.Equal(t, EnvSecret, b.Info().SecretOrigin)
		require.Len(t, b.Info().Secret, SecretSize)
		require.NoError(t, b.Close())
		_, set := os.LookupEnv(EnvSecret)
		require.False(t, set)
		out, err := exec.Command("env").Output()
		require.NoError(t, err)
		require.Contains(t, string(out), EnvBootstrap+"=singleton\n")
		require.NotContains(t, string(out), hexSecret)
	}
}
