package p2p_test

import (
	"context"
	"net"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/bootstrap"
	"github.com/tagmatch/tagmatch/internal/testlevel"
	"github.com/tagmatch/tagmatch/p2p"
)

// handedOut are the Bootstraps of two ranks to which rank 0 has handed out a secret in plain.
func handedOut(ctx context.Context, t *testing.T) (list [2]bootstrap.Bootstrap) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	_, port, _ := net.SplitHostPort(ln.Addr().String())
	require.NoError(t, ln.Close())
	var errs [2]error
	var ranks sync.WaitGroup
	for r := range list {
		env := map[string]string{"RANK": strconv.Itoa(r), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
		ranks.Go(func() {
			list[r], errs[r] = bootstrap.Detect(ctx, bootstrap.Options{Getenv: func(name string) string { return env[name] }})
		})
	}
	ranks.Wait()
	for r, err := range errs {
		require.NoError(t, err)
		require.True(t, list[r].Info().SecretExposed)
	}
	return list
}

// TestTLSNotByAnExposedSecret: a Bootstrap's secret that went to the ranks in plain is refused for
// TLS; it does without TLS, or where the Config has a secret.
func TestTLSNotByAnExposedSecret(t *testing.T) {
	for _, c := range []struct {
		tls    string
		secret []byte
		why    string
	}{
		{"secret", nil, "p2p: init: invalid argument: the secret of this Bootstrap (made by rank 0, handed out over the rendezvous) went to the ranks in plain"},
		{"off", nil, ""},
		{"secret", make([]byte, bootstrap.SecretSize), ""},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), testlevel.Patience(time.Minute))
		defer cancel()
		var ranks sync.WaitGroup
		var errs [2]error
		for r, b := range handedOut(ctx, t) {
			ranks.Go(func() {
				w, err := p2p.Init(ctx, p2p.Config{Bootstrap: b, TLS: c.tls, Secret: c.secret})
				if err == nil {
					err = w.Shutdown(ctx)
				}
				errs[r] = err
			})
		}
		ranks.Wait()
		for _, err := range errs {
			if c.why == "" {
				require.NoError(t, err)
				continue
			}
			require.ErrorIs(t, err, p2p.ErrInvalid)
			require.ErrorContains(t, err, c.why)
			require.ErrorContains(t, err, "set TAGMATCH_SECRET or TAGMATCH_SECRET_FILE for all ranks, or give Config.Secret")
		}
	}
}
