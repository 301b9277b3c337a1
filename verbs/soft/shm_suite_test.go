//go:build linux

package soft_test

import (
	"testing"

	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/soft"
	"github.com/tagmatch/tagmatch/verbs/verbstest"
)

func shmOpener(cfg soft.Config) verbstest.Opener {
	return func(t *testing.T, n int) []verbs.Device {
		t.Helper()
		devs := make([]verbs.Device, n)
		for i := range devs {
			c := cfg
			c.Rank, c.Secret, c.Wires = i, []byte("secret"), []string{soft.WireSHM}
			d, err := soft.Open(c)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = d.Close() })
			devs[i] = d
		}
		return devs
	}
}

// TestSHM runs the device suite over shared memory; one goroutine drives both devices.
func TestSHM(t *testing.T) {
	t.Run("direct", func(t *testing.T) { verbstest.Run(t, shmOpener(soft.Config{})) })
	t.Run("packets", func(t *testing.T) { verbstest.Run(t, shmOpener(soft.Config{NoDirect: true, RingBytes: 8192})) })
}
