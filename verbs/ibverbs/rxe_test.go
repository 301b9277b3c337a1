//go:build rxe

// These tests need two devices of the kernel's software RDMA, rv0 and rv1 on the interfaces v0 and
// v1, that reach each other: test/vm has them.

package ibverbs_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/testlevel"
	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/verbstest"
)

var open = opener("rv0", "rv1")

// leftOut are the rules that do not hold on rxe.
var leftOut = leftOutAnd(testlevel.LeftOut{
	"8.1/access":          "rxe says REM_INV_REQ_ERR where the queue pair lacks the right",
	"8.2/reclaim":         "rxe's queues hold more than they grant",
	"8.2/errors-complete": "rxe says LOC_QP_OP_ERR instead of LOC_PROT_ERR",
	"8.3/too-long":        "rxe says REM_OP_ERR instead of REM_INV_REQ_ERR",
	"8.3/lkey":            "rxe says REM_ACCESS_ERR instead of LOC_PROT_ERR",
	"8.3/first-error":     "rxe says LOC_QP_OP_ERR instead of LOC_PROT_ERR",
	"8.3/flush":           "rxe says REM_OP_ERR instead of REM_INV_REQ_ERR",
	"8.3/last-wqe":        "rxe says LOC_QP_OP_ERR instead of LOC_LEN_ERR",
})

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

func TestNames(t *testing.T) { refusesNames(t, "rv0", "rv1") }

func TestPortDown(t *testing.T) {
	portDown(t, "rv0", func(state string) { require.NoError(t, exec.Command("ip", "link", "set", "v0", state).Run()) })
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
	ports, err := verbs.Drivers()[0].(verbs.PortLister).Ports()
	require.NoError(t, err)
	require.Len(t, ports, 2)
	require.Equal(t, verbs.Port{Name: "rv0:1", State: "active, Ethernet, MTU 1024, GID 1: 10.77.0.1", Chosen: true}, ports[0])
	require.Equal(t, "rv1:1", ports[1].Name)
	require.False(t, ports[1].Chosen)
}
