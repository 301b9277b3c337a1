package p2p_test

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/buffertest"
	"github.com/tagmatch/tagmatch/p2p"
	"github.com/tagmatch/tagmatch/p2p/p2ptest"
)

// TestForgottenIsTold: Shutdown warns once of requests that were not completed, in every build.
func TestForgottenIsTold(t *testing.T) {
	var out buffertest.Buffer
	cfg := p2p.Config{Logger: slog.New(slog.NewTextHandler(&out, nil))}
	p2ptest.RunConfig(t, 1, cfg, func(w *p2p.World) {
		require.NoError(t, w.Comm().Send(background, 0, 5, nil)) // connects: those that follow go at once
		_, err := w.Comm().Recv(background, 0, 5, nil)
		require.NoError(t, err)
		for range 3 {
			w.Comm().Isend(0, 6, make([]byte, 9))
		}
		w.Isend(0, 7, nil)
		require.Equal(t, 4, w.Metrics().UnreportedNow)
		for range 3 {
			_, err := w.Comm().Recv(background, 0, 6, make([]byte, 9))
			require.NoError(t, err)
		}
		_, err = w.Recv(background, 7, p2p.MaskExact, nil)
		require.NoError(t, err)
	})
	require.Equal(t, 1, strings.Count(out.String(), "requests have ended and were never completed"), out.String())
	require.Contains(t, out.String(), `requests=4 which="send, tag 0x6, 9 bytes (3 times); send, raw tag 0x7, 0 bytes"`)
}
