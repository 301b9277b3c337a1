package rc_test

import (
	"testing"

	"github.com/tagmatch/tagmatch/internal/testlevel"
	"github.com/tagmatch/tagmatch/transport"
	"github.com/tagmatch/tagmatch/transport/rc"
	"github.com/tagmatch/tagmatch/transport/transporttest"
	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/soft"
	"github.com/tagmatch/tagmatch/verbs/soft/softtest"
)

// newRC opens a transport with few and small buffers; TestLoop takes the defaults.
func newRC(dev verbs.Device, rank, size int, o transporttest.Options, sink transport.Sink) (transport.Transport, error) {
	return newDefault(dev, rank, size, o.Small(), sink)
}

func newDefault(dev verbs.Device, rank, size int, o transporttest.Options, sink transport.Sink) (transport.Transport, error) {
	return rc.New(rc.Config{Device: dev, Rank: rank, Size: size, MaxEager: o.MaxEager, SRQDepth: o.SRQDepth,
		SendDepth: o.SendDepth, Job: "conformance"}, sink)
}

func TestLoop(t *testing.T) {
	transporttest.Run(t, transporttest.Harness{Devices: transporttest.LoopDevices(softtest.FabricOptions{}, soft.Config{}), New: newDefault, Long: testlevel.CI()})
}

// TestLoopRough: the wire delays, cuts and refuses at random.
func TestLoopRough(t *testing.T) {
	testlevel.SkipIfQuick(t)
	transporttest.Run(t, transporttest.Harness{Devices: transporttest.LoopDevices(transporttest.Rough, soft.Config{}), New: newRC, Seeds: transporttest.Seeds(3)})
}

func TestSHM(t *testing.T) {
	testlevel.SkipIfQuick(t)
	transporttest.Run(t, transporttest.Harness{Devices: transporttest.WireDevices(soft.WireSHM, soft.Config{}), New: newRC})
}

// TestSHMCopied: no direct access to peers' memory.
func TestSHMCopied(t *testing.T) {
	testlevel.SkipIfQuick(t)
	transporttest.Run(t, transporttest.Harness{Devices: transporttest.WireDevices(soft.WireSHM, softtest.WithoutDirect(soft.Config{RingBytes: 16 << 10})), New: newRC})
}

func TestTCP(t *testing.T) {
	transporttest.Run(t, transporttest.Harness{Devices: transporttest.WireDevices(soft.WireTCP, soft.Config{}), New: newRC})
}

func TestTLS(t *testing.T) {
	testlevel.SkipIfQuick(t)
	transporttest.Run(t, transporttest.Harness{Devices: transporttest.WireDevices(soft.WireTCP, softtest.WithTLS(soft.Config{})), New: newRC, Ranks: 24})
}

// TestNIC runs the suite on devices with all habits of NICs, and with each by itself.
func TestNIC(t *testing.T) { nicSuite(t, softtest.AllHabits()) }

func nicSuite(t *testing.T, h softtest.Habits) {
	transporttest.Run(t, transporttest.Harness{Devices: transporttest.LoopDevices(transporttest.Clocked, softtest.WithHabits(soft.Config{}, h)), New: newRC, Unheard: h.NoEvents})
}

func TestEachHabit(t *testing.T) {
	testlevel.SkipIfQuick(t)
	for name, h := range softtest.EachHabit() {
		t.Run(name, func(t *testing.T) { nicSuite(t, h) })
	}
}

func TestNoAllocation(t *testing.T) { transporttest.NoAllocation(t, newRC) }

func Benchmark(b *testing.B) { transporttest.Benchmark(b, newDefault) }

func TestOwner(t *testing.T) {
	transporttest.RequireOwner(t, transporttest.Harness{Devices: transporttest.LoopDevices(softtest.FabricOptions{}, soft.Config{}), New: newRC})
}

func TestBudget(t *testing.T) { transporttest.Budget(t, newRC) }
