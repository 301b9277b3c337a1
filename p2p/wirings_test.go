package p2p_test

import (
	"cmp"
	"hash/crc32"
	"testing"

	"github.com/tagmatch/tagmatch/internal/invariant"
	"github.com/tagmatch/tagmatch/internal/testlevel"
	"github.com/tagmatch/tagmatch/p2p"
	"github.com/tagmatch/tagmatch/p2p/p2ptest"
)

// offloaded gives receives of any size to the device, where the transport has one that matches.
var offloaded = p2p.Config{OffloadMin: -1}

// onRXE has eachWiring play on the device rdma alone, see TestRXE.
var onRXE bool

// eachWiring runs fn with both transports over every wire that works inside one process. Below
// level ci it is half of them, with each transport and each wire; the name of the test says which,
// and builds with -tags invariants have the other half.
func eachWiring(t *testing.T, cfg p2p.Config, fn func(t *testing.T, cfg p2p.Config)) {
	if onRXE {
		cfg.Device = "rdma"
		fn(t, cfg)
		return
	}
	half := crc32.ChecksumIEEE([]byte(t.Name()))&1 != 0 != invariant.Enabled
	for i, transport := range []string{"rc", "tmsrq"} {
		for j, device := range []string{"", "shm", "tcp"} {
			if !testlevel.CI() && ((i+j)%2 != 0) != half {
				continue
			}
			t.Run(transport+"/"+cmp.Or(device, "loop"), func(t *testing.T) {
				skipUnlessLinux(t, device)
				cfg.Transport, cfg.Device = transport, device
				fn(t, cfg)
			})
		}
	}
}

// onWirings runs fn on n ranks of each wiring. Each transport and each wire is played with each
// ProgressMode.
func onWirings(t *testing.T, n int, cfg p2p.Config, fn func(t *testing.T, w *p2p.World)) {
	eachWiring(t, cfg, func(t *testing.T, cfg p2p.Config) {
		if (cfg.Transport == "rc") == (cfg.Device != "") {
			cfg.Progress = p2p.ProgressManual
		}
		p2ptest.RunConfig(t, n, cfg, func(w *p2p.World) { fn(t, w) })
	})
}

// worldsOnWirings calls fn with the Worlds of n ranks of each wiring, which progress by themselves.
// The device gets every receive unless cfg has an OffloadMin: what only software matches is tested
// by rc.
func worldsOnWirings(t *testing.T, n int, cfg p2p.Config, fn func(t *testing.T, ws []*p2p.World)) {
	cfg.OffloadMin = cmp.Or(cfg.OffloadMin, offloaded.OffloadMin)
	eachWiring(t, cfg, func(t *testing.T, cfg p2p.Config) {
		joined, over, left := make(chan *p2p.World, n), make(chan struct{}), make(chan struct{})
		go func() {
			defer close(left)
			p2ptest.RunConfig(t, n, cfg, func(w *p2p.World) {
				joined <- w
				<-over
			})
		}()
		defer func() {
			close(over)
			<-left
		}()
		ws := make([]*p2p.World, n)
		for range n {
			select {
			case w := <-joined:
				ws[w.Rank()] = w
			case <-left: // no rank could join
				t.FailNow()
			}
		}
		defer closeIfFailed(t, ws...)
		fn(t, ws)
	})
}
