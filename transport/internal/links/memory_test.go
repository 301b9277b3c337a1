package links

import (
	"bytes"
	"log/slog"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/transport"
	"github.com/tagmatch/tagmatch/verbs/soft"
	"github.com/tagmatch/tagmatch/verbs/soft/softtest"
)

// TestUnregistered: a device without memory for one more region is back-pressure while a send or a
// read has one, which is logged once. Else it is an error: nothing else gives memory back.
func TestUnregistered(t *testing.T) {
	const limit = 1 << 20
	dev, err := soft.Open(softtest.WithLimits(soft.Config{Fabric: soft.NewFabric(), MaxInline: 64}, softtest.Limits{RegBytes: limit}))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, dev.Close()) })
	sink := &endSink{}
	tr := self(t, dev, sink)
	var log bytes.Buffer
	tr.cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
	buf := make([]byte, limit/2)
	ask := map[string]func() error{
		"send": func() error { _, err := tr.Register(0, make([]byte, limit)); return err },
		"read": func() error { return tr.Read(0, make([]byte, limit), 0, 0, 1) },
	}
	refused := func() {
		t.Helper()
		for name, f := range ask {
			err := f()
			require.ErrorIs(t, err, syscall.ENOMEM, name)
			require.ErrorContains(t, err, "no memory can be registered for 1048576 bytes, beside 3 regions of ", name)
		}
	}
	again := func() {
		t.Helper()
		for name, f := range ask {
			require.Equal(t, transport.ErrAgain, f(), name)
		}
	}
	refused()
	require.Empty(t, log.String())
	region, err := tr.Register(0, buf)
	require.NoError(t, err)
	again()
	require.NoError(t, region.Dereg())
	refused()
	require.NoError(t, tr.Read(0, buf, 0, 0, 2))
	again()
	for len(sink.reads) == 0 {
		tr.poll(t)
	}
	refused()
	matched := false
	tr.cfg.Registered = func() (int, int, bool) { return 0, 0, matched }
	refused()
	matched = true
	again()
	require.Equal(t, 1, bytes.Count(log.Bytes(), []byte("\n")), log.String())
	require.Contains(t, log.String(), "rank=0 device=soft bytes=1048576 err=")
	require.Contains(t, log.String(), syscall.ENOMEM.Error())
}

// TestConnectsLater: a connection for which memory is short is made once some has come back.
func TestConnectsLater(t *testing.T) {
	const limit = 1 << 20
	dev, err := soft.Open(softtest.WithLimits(soft.Config{Fabric: soft.NewFabric(), MaxInline: 64}, softtest.Limits{RegBytes: limit}))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, dev.Close()) })
	tr := unmet(t, dev, &endSink{})
	var all []transport.Region
	for size := limit; size > 0; size /= 2 {
		for {
			r, err := tr.Register(0, make([]byte, size))
			if err != nil {
				break
			}
			all = append(all, r)
		}
	}
	require.Equal(t, transport.ErrAgain, tr.SendFin(0, 1))
	for range 300 {
		tr.poll(t)
	}
	require.Equal(t, transport.ErrAgain, tr.SendFin(0, 1), "it is neither connected nor lost")
	for _, r := range all {
		require.NoError(t, r.Dereg())
	}
	tr.poll(t)
	require.NoError(t, tr.SendFin(0, 1))
}
