//go:build card

// These tests need an RDMA device. TAGMATCH_TEST_CARD names its ports: one, or several that reach
// each other, as in "mlx5_0,mlx5_1". See docs/rdma.md.

package ibverbs_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/transport/transporttest"
	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/verbstest"
)

// TestCard plays the suites of devices and of transports.
func TestCard(t *testing.T) {
	names := os.Getenv("TAGMATCH_TEST_CARD")
	require.NotEmpty(t, names, "set TAGMATCH_TEST_CARD")
	ports := strings.Split(names, ",")
	d := opener(ports...)(t, 1)[0]
	attr := d.Attr()
	t.Logf("tag matching: %+v %s", attr.TM, attr.NoTM)
	require.NoError(t, d.Close())
	t.Run("device", func(t *testing.T) {
		verbstest.Run(t, opener(ports...), verbstest.TagOptions{Silent: true, ByItself: true, SyncReqOfDriver: true, LeftOut: leftOutAnd(nil),
			Patience: time.Minute})
	})
	t.Run("tmsrq", func(t *testing.T) {
		if attr.TM.Flags&verbs.TMCapRC == 0 {
			t.Skip("no tag matching:", attr.NoTM)
		}
		transporttest.Run(t, tagTransport(ports...))
	})
}

// tagTransport is tmsrq on such ports.
func tagTransport(ports ...string) transporttest.Harness {
	return transporttest.Harness{New: newTM, Tags: true, Ranks: 8, Devices: func(t *testing.T, n int, o transporttest.Options) *transporttest.Job {
		job := &transporttest.Job{Devices: opener(ports...)(t, n)}
		for i, d := range job.Devices {
			if o.MaxOps > 0 {
				job.Devices[i] = fewOps{d, uint32(o.MaxOps)}
			}
		}
		return job
	}}
}

// fewOps is a device with room for fewer list operations.
type fewOps struct {
	verbs.Device
	most uint32
}

func (d fewOps) Attr() verbs.DeviceAttr {
	a := d.Device.Attr()
	a.TM.MaxOps = d.most
	return a
}
