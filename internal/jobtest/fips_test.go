package jobtest

import (
	"bytes"
	"context"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/bootstrap"
	"github.com/tagmatch/tagmatch/internal/launch"
	"github.com/tagmatch/tagmatch/p2p"
)

// noSecretVar has each rank use a Bootstrap without a secret.
const noSecretVar = "JOBTEST_NO_SECRET"

func init() {
	before := configure
	configure = func(ctx context.Context, c *p2p.Config) error {
		if os.Getenv(noSecretVar) == "" {
			return before(ctx, c)
		}
		b, err := bootstrap.Detect(ctx, bootstrap.Options{})
		c.Bootstrap = noSecret{b}
		return err
	}
}

// noSecret is a Bootstrap that knows no secret.
type noSecret struct{ p2p.Bootstrap }

func (b noSecret) Info() bootstrap.Info {
	i := b.Bootstrap.Info()
	i.Secret = nil
	return i
}

// TestFIPS: where Go's crypto enforces FIPS 140 a job works that has a secret, and one that has
// none fails, and says what to do.
func TestFIPS(t *testing.T) {
	fips := "GODEBUG=fips140=only"
	eachDevice(t, func(t *testing.T, device string) {
		job{n: 3, role: "alltoall", device: device, arg: 2, env: []string{fips}}.succeed(t)
	})
	r := job{n: 2, role: "hello", env: []string{fips, noSecretVar + "=1"}}.run(t)
	require.Equal(t, 1, r.code)
	require.Contains(t, r.err, "GODEBUG=fips140=only allows no handshake without one: give Config.Secret")
	require.NotContains(t, r.err, "panic")

	var stderr bytes.Buffer
	code, err := launch.Run(t.Context(), launch.Options{N: 2, Command: []string{"sh", "-c", `unset TAGMATCH_SECRET; exec "$0"`, os.Args[0]},
		Stdout: &stderr, Stderr: &stderr, Env: append(os.Environ(), roleVar+"=hello", fips)})
	require.NoError(t, err)
	require.Equal(t, 1, code)
	require.Contains(t, stderr.String(), "GODEBUG=fips140=only allows no handshake without one: set TAGMATCH_SECRET")
	require.False(t, strings.Contains(stderr.String(), "panic"), "%s", &stderr)
}
