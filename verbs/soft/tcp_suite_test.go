//go:build linux

package soft_test

import (
	"testing"

	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/soft"
	"github.com/tagmatch/tagmatch/verbs/verbstest"
)

// TestTCP runs the device suite over tcp; one goroutine drives both devices.
func TestTCP(t *testing.T) {
	verbstest.Run(t, func(t *testing.T, n int) []verbs.Device {
		t.Helper()
		devs := make([]verbs.Device, n)
		for i := range devs {
			d, err := soft.Open(soft.Config{Rank: i, Secret: []byte("secret"), Wires: []string{soft.WireTCP}})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = d.Close() })
			devs[i] = d
		}
		return devs
	})
}
