//go:build rxe

// These tests need two devices of the kernel's software RDMA, rv0 and rv1 on the interfaces v0 and
// v1, that reach each other: test/vm has them.

package ibverbs_test

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
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

// open opens n devices, on the two ports by turns.
func open(t *testing.T, n int) []verbs.Device {
	var out []verbs.Device
	for i := range n {
		d, err := ibverbs.Open(fmt.Sprintf("rv%d", i%2), verbs.DriverConfig{Lines: openLines})
		require.NoError(t, err)
		t.Cleanup(func() { _ = d.Close() })
		out = append(out, d)
	}
	return out
}

// leftOut are the rules that do not hold on rxe.
var leftOut = testlevel.LeftOut{
	"api/drain-posts":     "what has come before a queue pair goes to ERR completes, as on every NIC",
	"8.1/any":             "the kernel has no transition from RESET to ERR",
	"8.1/access":          "rxe says REM_INV_REQ_ERR where the queue pair lacks the right",
	"8.2/reclaim":         "rxe's queues hold more than they grant",
	"8.2/errors-complete": "rxe says LOC_QP_OP_ERR instead of LOC_PROT_ERR",
	"8.3/too-long":        "rxe says REM_OP_ERR instead of REM_INV_REQ_ERR",
	"8.3/lkey":            "rxe says REM_ACCESS_ERR instead of LOC_PROT_ERR",
	"8.3/first-error":     "rxe says LOC_QP_OP_ERR instead of LOC_PROT_ERR",
	"8.3/flush":           "rxe says REM_OP_ERR instead of REM_INV_REQ_ERR",
	"8.3/last-wqe":        "rxe says LOC_QP_OP_ERR instead of LOC_LEN_ERR",
	"8.3/peer-gone":       "the end of a device is told on a line alone, which these two do not have",
}

func init() {
	if version, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil && strings.HasPrefix(string(version), "6.1.") {
		for _, rule := range []string{"1.4/chain", "1.4/full"} {
			leftOut[rule] = "rxe's shared queues hold more than they grant"
		}
	}
}

// TestSuite: a long READ over a wire that loses packets takes many timeouts.
func TestSuite(t *testing.T) {
	verbstest.Run(t, open, verbstest.TagOptions{Silent: true, ByItself: true, NoEvents: true, LeftOut: leftOut, Patience: 2 * time.Minute})
}

func TestLeftOut(t *testing.T) { leftOut.StillFails(t, "TestSuite") }

// TestNames: a device, port or GID that is not there is an error that lists those that are.
func TestNames(t *testing.T) {
	for name, says := range map[string]string{"nosuch": "this host has rv0, rv1", "rv0:2": "the ports of rv0 are 1 to 1", "rv0:x": "rv0:x"} {
		_, err := ibverbs.Open(name, verbs.DriverConfig{Lines: openLines})
		require.ErrorContains(t, err, says)
	}
	t.Setenv("TAGMATCH_RDMA_GID", "200")
	_, err := ibverbs.Open("rv0", verbs.DriverConfig{Lines: openLines})
	require.ErrorContains(t, err, "TAGMATCH_RDMA_GID")
}

// TestPortDown: a port that goes down, or up, is an event, and one that is down cannot be opened.
func TestPortDown(t *testing.T) {
	d := open(t, 1)[0]
	set := func(state string, event verbs.AsyncEventType) {
		require.NoError(t, exec.Command("ip", "link", "set", "v0", state).Run())
		require.Eventually(t, func() bool {
			ev, ok := d.PollAsync()
			return ok && ev == verbs.AsyncEvent{Type: event}
		}, 20*time.Second, 10*time.Millisecond, event.String())
	}
	set("down", verbs.EventPortErr)
	_, err := ibverbs.Open("rv0", verbs.DriverConfig{Lines: openLines})
	require.ErrorContains(t, err, "port rv0:1 is DOWN")
	set("up", verbs.EventPortActive)
	again := open(t, 1)[0]
	require.NoError(t, again.Close())
	require.Error(t, again.Close())
}

// TestDriver: programs find the device by its one name.
func TestDriver(t *testing.T) {
	for _, d := range verbs.Drivers() {
		names, err := d.Devices()
		require.NoError(t, err)
		require.Equal(t, []string{"rdma"}, names)
		dev, err := d.Open("rdma", verbs.DriverConfig{Lines: openLines})
		require.NoError(t, err)
		require.Equal(t, "rdma", dev.Name())
		attr := dev.Attr()
		require.GreaterOrEqual(t, attr.MaxInline, 258, "a control message fits")
		require.Zero(t, attr.TM, "rxe has no tag matching")
		require.Equal(t, verbs.Suits{Receives: 2048, Sends: 64}, attr.Suits)
		require.NoError(t, dev.Close())
	}
	require.Len(t, verbs.Drivers(), 1)
}
