package tmsrq_test

import (
	"testing"

	"github.com/tagmatch/tagmatch/transport/transporttest"
	"github.com/tagmatch/tagmatch/verbs/soft"
)

// strict devices check the host's side of the bargain: V11, V13, V14, V19.
var strict = soft.TMConfig{Strict: true}

var newTM = startingAt(0)

func TestLoop(t *testing.T) {
	transporttest.Run(t, transporttest.Harness{Devices: transporttest.LoopDevices(soft.FabricOptions{}, soft.Config{TM: strict}), New: newTM, Tags: true, Long: !testing.Short()})
}

// TestLoopRough lets the wire delay, cut and refuse at random.
func TestLoopRough(t *testing.T) {
	transporttest.Run(t, transporttest.Harness{Devices: transporttest.LoopDevices(transporttest.Rough, soft.Config{TM: strict}), New: newTM, Tags: true, Seeds: transporttest.Seeds(3)})
}

func TestSHM(t *testing.T) {
	transporttest.Run(t, transporttest.Harness{Devices: transporttest.WireDevices(soft.WireSHM, soft.Config{TM: strict}), New: newTM, Tags: true})
}

// TestSHMCopied is without direct access to peers' memory.
func TestSHMCopied(t *testing.T) {
	transporttest.Run(t, transporttest.Harness{Devices: transporttest.WireDevices(soft.WireSHM, soft.Config{TM: strict, NoDirect: true, RingBytes: 16 << 10}), New: newTM, Tags: true})
}

func TestTCP(t *testing.T) {
	transporttest.Run(t, transporttest.Harness{Devices: transporttest.WireDevices(soft.WireTCP, soft.Config{TM: strict}), New: newTM, Tags: true})
}
