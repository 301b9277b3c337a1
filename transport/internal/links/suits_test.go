package links

import (
	"bytes"
	"log/slog"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/transport/internal/check"
	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/soft"
	"github.com/tagmatch/tagmatch/verbs/soft/softtest"
)

// fitted is a device that is suited by other sizes than most.
type fitted struct {
	verbs.Device
	suits verbs.Suits
}

func (d fitted) Attr() verbs.DeviceAttr {
	attr := d.Device.Attr()
	attr.Suits = d.suits
	return attr
}

// TestSuits: a transport takes the sizes that suit its device, unless it is given others.
func TestSuits(t *testing.T) {
	dev := openDevice(t)
	for _, c := range []struct{ given, suits, want verbs.Suits }{
		{want: verbs.Suits{Receives: 512, Sends: 256}},
		{suits: verbs.Suits{Receives: 2048, Sends: 64}, want: verbs.Suits{Receives: 2048, Sends: 64}},
		{suits: verbs.Suits{Receives: 1 << 30}, want: verbs.Suits{Receives: dev.Attr().MaxSRQWR, Sends: 256}},
		{given: verbs.Suits{Receives: 9, Sends: 7}, suits: verbs.Suits{Receives: 2048, Sends: 64}, want: verbs.Suits{Receives: 9, Sends: 7}},
	} {
		cfg := Config{Device: fitted{dev, c.suits}, Size: 1, SRQDepth: c.given.Receives, SendDepth: c.given.Sends}
		require.NoError(t, cfg.Fill())
		require.Equal(t, c.want, verbs.Suits{Receives: cfg.SRQDepth, Sends: cfg.SendDepth})
	}
}

// TestFewerReceives: with little memory a transport opens with fewer receives, which it logs once,
// and leaves as much as these take. Below 128 receives it fails.
func TestFewerReceives(t *testing.T) {
	for _, c := range []struct{ bytes, receives int }{{64 << 20, 2048}, {10 << 20, 512}, {8 << 20, 256}, {17 << 17, 128}, {1 << 20, 0}} {
		dev, err := soft.Open(softtest.WithLimits(soft.Config{Fabric: soft.NewFabric(), MaxInline: 64}, softtest.Limits{RegBytes: c.bytes}))
		require.NoError(t, err)
		var log bytes.Buffer
		cfg := Config{Mode: "test", Device: fitted{dev, verbs.Suits{Receives: 2048, Sends: 64}}, Size: 1, MaxEager: 8 << 10,
			Logger: slog.New(slog.NewTextHandler(&log, nil))}
		require.NoError(t, cfg.Fill())
		e := &endpoint{}
		sink, inv := check.New(&endSink{}, dev, 1)
		err = Open(&e.Links, cfg, sink, inv)
		switch c.receives {
		case 0:
			require.ErrorIs(t, err, syscall.ENOMEM)
			require.ErrorContains(t, err, "receive buffers, 128 of ")
		case 2048:
			require.NoError(t, err)
			require.Empty(t, log.String())
		default:
			require.NoError(t, err)
			require.Equal(t, c.receives, e.cfg.SRQDepth)
			require.Equal(t, 1, bytes.Count(log.Bytes(), []byte("\n")), log.String())
			require.Regexp(t, `rank=0 device=soft receives=\d+ wanted=2048 err=.*reg_mr: .*can be registered`, log.String())
		}
		require.NoError(t, e.Close())
		require.NoError(t, dev.Close())
	}
}
