//go:build linux

package soft_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/soft"
	"github.com/tagmatch/tagmatch/verbs/verbstest"
)

func tcpOpener(t *testing.T, n int) []verbs.Device {
	devs := make([]verbs.Device, n)
	for i := range devs {
		d, err := soft.Open(soft.Config{Wires: []string{soft.WireTCP}, Secret: []byte("a secret"), Rank: i})
		require.NoError(t, err)
		t.Cleanup(func() { _ = d.Close() })
		devs[i] = d
	}
	return devs
}

func TestTCPSuite(t *testing.T) {
	defer goleak.VerifyNone(t)
	verbstest.Run(t, tcpOpener, verbstest.TagOptions{})
}
