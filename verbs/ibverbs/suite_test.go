package ibverbs_test

import (
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/testlevel"
	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/ibverbs"
	"github.com/tagmatch/tagmatch/verbs/soft"
	"github.com/tagmatch/tagmatch/verbs/verbstest"
)

func openLines(carried []byte) (verbs.LineDevice, error) {
	return soft.Open(soft.Config{Wires: []string{soft.WireTCP}, Secret: []byte("secret"), Carried: carried})
}

// opener opens devices on ports by turns.
func opener(ports ...string) verbstest.Opener {
	return func(t *testing.T, n int) []verbs.Device {
		var out []verbs.Device
		for i := range n {
			d, err := ibverbs.Open(ports[i%len(ports)], verbs.DriverConfig{Lines: openLines})
			require.NoError(t, err)
			t.Cleanup(func() { _ = d.Close() })
			out = append(out, d)
		}
		return out
	}
}

// leftOutAnd are the rules that hold on no NIC, and more.
func leftOutAnd(more testlevel.LeftOut) testlevel.LeftOut {
	out := testlevel.LeftOut{
		"api/drain-posts": "what has come before a queue pair goes to ERR completes, as on every NIC",
		"8.1/any":         "the kernel has no transition from RESET to ERR",
		"8.3/peer-gone":   "the end of a device is told on a line alone, which these two do not have",
	}
	maps.Copy(out, more)
	return out
}

// refusesNames: a device, port or GID that is not there is an error that lists those that are.
func refusesNames(t *testing.T, a, b string) {
	for name, says := range map[string]string{"nosuch": "this host has " + a + ", " + b, a + ":2": "the ports of " + a + " are 1 to 1", a + ":x": a + ":x"} {
		_, err := ibverbs.Open(name, verbs.DriverConfig{Lines: openLines})
		require.ErrorContains(t, err, says)
	}
	t.Setenv("TAGMATCH_RDMA_GID", "200")
	_, err := ibverbs.Open(a, verbs.DriverConfig{Lines: openLines})
	require.ErrorContains(t, err, "TAGMATCH_RDMA_GID")
}

// wantEvent waits for an event of a port.
func wantEvent(t *testing.T, d verbs.Device, event verbs.AsyncEventType) (got verbs.AsyncEvent) {
	require.Eventually(t, func() bool {
		var ok bool
		got, ok = d.PollAsync()
		return ok && got.Type == event && got.QP == 0
	}, testlevel.Patience(20*time.Second), 10*time.Millisecond, event.String())
	return got
}

// portDown: a port that goes down, or up, is an event, and one that is down cannot be opened.
func portDown(t *testing.T, port string, set func(state string)) {
	d := opener(port)(t, 1)[0]
	set("down")
	wantEvent(t, d, verbs.EventPortErr)
	_, err := ibverbs.Open(port, verbs.DriverConfig{Lines: openLines})
	require.ErrorContains(t, err, "port "+port+":1 is down")
	set("up")
	wantEvent(t, d, verbs.EventPortActive)
	again := opener(port)(t, 1)[0]
	require.NoError(t, again.Close())
	require.Error(t, again.Close())
}
