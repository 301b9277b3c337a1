package tmsrq_test

import (
	"testing"

	"github.com/tagmatch/tagmatch/internal/testlevel"
	"github.com/tagmatch/tagmatch/transport"
	"github.com/tagmatch/tagmatch/transport/tmsrq"
	"github.com/tagmatch/tagmatch/transport/transporttest"
	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/soft"
	"github.com/tagmatch/tagmatch/verbs/soft/softtest"
)

// strict devices check that the transport keeps V11, V13, V14 and V19.
var strict = softtest.TM{Strict: true}

// newTM opens a transport with few and small buffers; TestLoop takes the defaults.
func newTM(dev verbs.Device, rank, size int, o transporttest.Options, sink transport.Sink) (transport.Transport, error) {
	return newDefault(dev, rank, size, o.Small(), sink)
}

func newDefault(dev verbs.Device, rank, size int, o transporttest.Options, sink transport.Sink) (transport.Transport, error) {
	return tmsrq.New(tmsrq.Config{Device: dev, Rank: rank, Size: size, MaxEager: o.MaxEager, SRQDepth: o.SRQDepth,
		SendDepth: o.SendDepth, MaxTags: o.MaxTags, Job: "conformance"}, sink)
}

func TestLoop(t *testing.T) {
	testlevel.SkipIfQuick(t)
	transporttest.Run(t, transporttest.Harness{Devices: transporttest.LoopDevices(softtest.FabricOptions{}, softtest.WithTM(soft.Config{}, strict)), New: newDefault, Tags: true, Long: testlevel.CI()})
}

// TestLoopRough: the wire delays, cuts and refuses at random.
func TestLoopRough(t *testing.T) {
	testlevel.SkipIfQuick(t)
	transporttest.Run(t, transporttest.Harness{Devices: transporttest.LoopDevices(transporttest.Rough, softtest.WithTM(soft.Config{}, strict)), New: newTM, Tags: true, Seeds: transporttest.Seeds(3)})
}

func TestSHM(t *testing.T) {
	transporttest.Run(t, transporttest.Harness{Devices: transporttest.WireDevices(soft.WireSHM, softtest.WithTM(soft.Config{}, strict)), New: newTM, Tags: true})
}

// copied is without direct access to peers' memory.
var copied = softtest.WithoutDirect(soft.Config{RingBytes: 16 << 10})

func TestSHMCopied(t *testing.T) {
	testlevel.SkipIfQuick(t)
	transporttest.Run(t, transporttest.Harness{Devices: transporttest.WireDevices(soft.WireSHM, softtest.WithTM(copied, strict)), New: newTM, Tags: true})
}

func TestTCP(t *testing.T) {
	testlevel.SkipIfQuick(t)
	transporttest.Run(t, transporttest.Harness{Devices: transporttest.WireDevices(soft.WireTCP, softtest.WithTM(soft.Config{}, strict)), New: newTM, Tags: true})
}

func TestTLS(t *testing.T) {
	testlevel.SkipIfQuick(t)
	cfg := softtest.WithTLS(softtest.WithTM(soft.Config{}, strict))
	transporttest.Run(t, transporttest.Harness{Devices: transporttest.WireDevices(soft.WireTCP, cfg), New: newTM, Tags: true, Ranks: 24})
}

// leftOut are the tests that do not hold on devices with such habits.
func leftOut(h softtest.Habits) testlevel.LeftOut {
	if !h.Tags {
		return nil
	}
	return testlevel.LeftOut{"TagsLied": "a completion with MATCH names no queue pair: who has sent it in the name of another is not known"}
}

// TestNIC runs the suite on devices with all habits of NICs, and with each by itself.
func TestNIC(t *testing.T) { nicSuite(t, softtest.AllHabits()) }

func nicSuite(t *testing.T, h softtest.Habits) {
	cfg := softtest.WithTM(softtest.WithHabits(soft.Config{}, h), strict)
	transporttest.Run(t, transporttest.Harness{Devices: transporttest.LoopDevices(transporttest.Clocked, cfg), New: newTM, Tags: true, Unheard: h.NoEvents, LeftOut: leftOut(h)})
}

func TestNICLeftOut(t *testing.T) {
	testlevel.SkipIfQuick(t)
	leftOut(softtest.AllHabits()).StillFails(t, "TestNIC/seed=1")
	leftOut(softtest.Habits{Tags: true}).StillFails(t, "TestEachHabit/tags/seed=1")
}

func TestEachHabit(t *testing.T) {
	testlevel.SkipIfQuick(t)
	for name, h := range softtest.EachHabit() {
		t.Run(name, func(t *testing.T) { nicSuite(t, h) })
	}
}

func TestNoAllocation(t *testing.T) { transporttest.NoAllocation(t, newTM) }

func Benchmark(b *testing.B) { transporttest.Benchmark(b, newDefault) }

func TestOwner(t *testing.T) {
	transporttest.RequireOwner(t, transporttest.Harness{Devices: transporttest.LoopDevices(softtest.FabricOptions{}, softtest.WithTM(soft.Config{}, strict)), New: newTM})
}

func TestBudget(t *testing.T) { transporttest.Budget(t, newTM) }
