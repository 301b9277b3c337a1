package bootstrap

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/bootstrap/internal/ranktest"
	"github.com/tagmatch/tagmatch/bootstrap/internal/tcpstore/tcpstoretest"
	"github.com/tagmatch/tagmatch/internal/secure/securetest"
)

// TestTLSNeedsASecret: without one that only the ranks know there is no TLS.
func TestTLSNeedsASecret(t *testing.T) {
	const want = "no job secret, and TAGMATCH_TLS needs one that only the ranks know: set TAGMATCH_SECRET or TAGMATCH_SECRET_FILE for all ranks"
	torch := envOf(0, 2, "1").with("TORCHELASTIC_USE_AGENT_STORE", "True")
	for _, env := range []vars{envOf(0, 2, "1"), envOf(1, 2, "1"), torch} {
		for _, tls := range []string{"secret", securetest.ThisHost(t)} {
			_, err := Detect(ranktest.Timeout(t), options(env.with(EnvTLS, tls)))
			require.ErrorIs(t, err, ErrConfig)
			require.ErrorContains(t, err, want)
		}
	}
	for env, want := range map[string]string{
		"on":                        `TAGMATCH_TLS is "on": give off, secret, or three PEM files as CERTIFICATE,KEY,ROOTS`,
		"/none.pem,/no-key.pem,/no": "TAGMATCH_TLS: certificate /none.pem with key /no-key.pem: open",
	} {
		_, err := Detect(ranktest.Timeout(t), options(envOf(0, 2, "1").with(EnvSecret, hexSecret, EnvTLS, env)))
		require.ErrorIs(t, err, ErrConfig)
		require.ErrorContains(t, err, want)
	}
	dir := vars{"WORLD_SIZE": "2", EnvStore: t.TempDir(), EnvJobID: "a", EnvTLS: "secret"} // rank 0 publishes one there
	list := make([]Bootstrap, 2)
	ranktest.Each(t, 2, func(r int) (err error) {
		list[r], err = Detect(ranktest.Timeout(t), options(dir.with("RANK", fmt.Sprint(r))))
		return err
	})
	closeAll(t, list)
	b, err := Detect(ranktest.Timeout(t), options(vars{EnvTLS: "secret"}))
	require.NoError(t, err)
	require.NoError(t, b.Close())
}

// TestOpenKeyIsWarnedOf: as a secret file is, a private key that everybody can read is warned of.
func TestOpenKeyIsWarnedOf(t *testing.T) {
	files := securetest.ThisHost(t)
	key := strings.Split(files, ",")[1]
	for mode, want := range map[os.FileMode]bool{0o600: false, 0o644: true} {
		require.NoError(t, os.Chmod(key, mode))
		warned := false
		opt := options(vars{EnvTLS: files})
		opt.Logger = ranktest.On("the file with the private key is open to everybody on this host", func() { warned = true })
		b, err := Detect(ranktest.Timeout(t), opt)
		require.NoError(t, err)
		require.NoError(t, b.Close())
		require.Equal(t, want, warned, "%v", mode)
	}
}

// TestExposedSecret: a Bootstrap says of its secret whether others may have read it.
func TestExposedSecret(t *testing.T) {
	s, err := tcpstoretest.Start("127.0.0.1:0", false)
	require.NoError(t, err)
	defer s.Close()
	dir, plain := t.TempDir(), jobEnv(t, 2)
	for name, c := range map[string]struct {
		env     func(rank int) vars
		exposed bool
	}{
		"torchrun":        {func(r int) vars { return workerEnv(s.Addr(), r, 2) }, true},
		"torchrun, given": {func(r int) vars { return workerEnv(s.Addr(), r, 2).with(EnvSecret, hexSecret) }, false},
		"a directory": {func(r int) vars {
			return vars{"RANK": fmt.Sprint(r), "WORLD_SIZE": "2", EnvStore: dir, EnvJobID: "a"}
		}, false},
		"handed out": {plain, true},
	} {
		list := make([]Bootstrap, 2)
		ranktest.Each(t, 2, func(r int) (err error) {
			list[r], err = Detect(ranktest.Timeout(t), options(c.env(r)))
			return err
		})
		for r, b := range list {
			require.Equal(t, c.exposed, b.Info().SecretExposed, "%s, rank %d", name, r)
		}
		closeAll(t, list)
	}
}
