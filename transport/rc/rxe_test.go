//go:build rxe

package rc_test

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/testlevel"
	"github.com/tagmatch/tagmatch/transport/transporttest"
	"github.com/tagmatch/tagmatch/verbs"
	_ "github.com/tagmatch/tagmatch/verbs/ibverbs"
	"github.com/tagmatch/tagmatch/verbs/soft"
)

// notOnRXE are the tests that do not hold on the kernel's software RDMA.
var notOnRXE = testlevel.LeftOut{
	"HostileLength": "rxe says LOC_QP_OP_ERR instead of LOC_LEN_ERR of a message that is longer than any receive",
}

// TestRXE runs the suite on the kernel's software RDMA: test/vm has two devices on a wire. In a
// machine without KVM the queue pairs of 40 ranks would take minutes.
func TestRXE(t *testing.T) {
	transporttest.Run(t, transporttest.Harness{Devices: rxeDevices, New: newRC, Unheard: true, Ranks: 8, LeftOut: notOnRXE})
}

func TestRXELeftOut(t *testing.T) { notOnRXE.StillFails(t, "TestRXE/seed=1") }

// rxeDevices opens devices by turns on the ports that test/vm names.
func rxeDevices(t *testing.T, n int, _ transporttest.Options) *transporttest.Job {
	ports := strings.Split(os.Getenv("TAGMATCH_TEST_RDMA"), ",")
	lines := func(carried []byte) (verbs.LineDevice, error) {
		return soft.Open(soft.Config{Wires: []string{soft.WireTCP}, Secret: []byte("secret"), Carried: carried})
	}
	job := &transporttest.Job{}
	for i := range n {
		t.Setenv("TAGMATCH_RDMA_PORT", ports[i%len(ports)])
		dev, err := verbs.Drivers()[0].Open("rdma", verbs.DriverConfig{Rank: i, Lines: lines})
		require.NoError(t, err)
		job.Devices = append(job.Devices, dev)
	}
	return job
}
