package transporttest

import (
	"cmp"
	"fmt"
	"testing"

	"github.com/tagmatch/tagmatch/internal/testlevel"
	"github.com/tagmatch/tagmatch/transport"
	"github.com/tagmatch/tagmatch/verbs"
)

// Options of a test's devices and transports. Zero values mean the defaults.
type Options struct {
	MaxEager  int // as in rc.Config: negative for 0
	SendDepth int
	SRQDepth  int
	MaxInline int // of the devices
	MaxTags   int // as in tmsrq.Config; transports without a device's tag list ignore it
	MaxOps    int // list operations outstanding, of the devices; 0: the harness's default
	Seed      uint64
}

// Small is o with few and small buffers, unless it chooses them. A transport's default ones have up
// to 48 MiB, which to clear takes longer than most tests. Sizes tests all eager limits.
func (o Options) Small() Options {
	o.SRQDepth, o.MaxTags, o.MaxEager = cmp.Or(o.SRQDepth, 64), cmp.Or(o.MaxTags, 64), cmp.Or(o.MaxEager, 8<<10)
	return o
}

// Job is the devices of a job, one for each rank.
type Job struct {
	Devices []verbs.Device
	// Kill ends a rank's device as its process's death would; nil where that is impossible inside
	// one process.
	Kill func(rank int)
}

// Opener makes the transport of a rank.
type Opener func(dev verbs.Device, rank, size int, opts Options, sink transport.Sink) (transport.Transport, error)

// Harness opens the devices and transports under test.
type Harness struct {
	// Devices opens n devices, or skips the test and names the missing capability. The suite closes
	// them, and fails if objects are left open in them.
	Devices func(t *testing.T, n int, opts Options) *Job
	New     Opener
	// Seeds to run with; nil: one. Several make sense where the seed determines the wire's
	// behaviour.
	Seeds []uint64
	// Tags: the transport has a tag list.
	Tags bool
	// OwnAddress: Transport.Address is not rc's; tests that decode it, or take the place of a rank,
	// are left out.
	OwnAddress bool
	// Unheard: no event tells of a queue pair that fails, and so nobody of a request that the
	// device refuses.
	Unheard bool
	// Ranks are the most of a job, where connections take long; 0: 40.
	Ranks int
	// LeftOut are tests that do not hold for the devices.
	LeftOut testlevel.LeftOut
	// Long runs more and larger cases.
	Long bool
}

// Run runs the suite.
func Run(t *testing.T, h Harness) {
	h.seeds(t, h.run)
}

// limits are the eager limits to test; as Options.MaxEager.
var limits = []int{-1, 1, 64, 1 << 10, 8 << 10, 32 << 10, 60 << 10}

// RunTags runs those tests of tag lists that do not depend on how soon the device executes list
// operations.
func RunTags(t *testing.T, h Harness) {
	h.seeds(t, h.runTags)
}

func (h Harness) seeds(t *testing.T, run func(*testing.T, uint64)) {
	seeds := h.Seeds
	if len(seeds) == 0 {
		seeds = []uint64{1}
	}
	for _, seed := range seeds {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) { run(t, seed) })
	}
}

func (h Harness) tester(t *testing.T, seed uint64) func(name string, f func(t *testing.T, h Harness, opts Options)) {
	return func(name string, f func(t *testing.T, h Harness, opts Options)) {
		if h.LeftOut.Has(name) {
			return
		}
		t.Run(name, func(t *testing.T) {
			checkLeaks(t)
			f(t, h, Options{Seed: seed})
		})
	}
}

func (h Harness) runTags(t *testing.T, seed uint64) {
	test := h.tester(t, seed)
	test("TagsCancelRace", testTagsCancelRace)
	test("TagsBeyondQueue", testTagsBeyondQueue)
	test("TagsLost", testTagsLost)
}

func (h Harness) run(t *testing.T, seed uint64) {
	test := h.tester(t, seed)
	test("Caps", testCaps)
	test("Order", testOrder)
	test("Chains", testChains)
	test("Sizes", testSizes)
	test("TooLarge", testTooLarge)
	test("BackPressure", testBackPressure)
	test("Concurrent", testConcurrent)
	test("Reads", testReads)
	test("ReadsAtOnce", testReadsAtOnce)
	test("ReadsLeaveRoom", testReadsLeaveRoom)
	test("ReadRefused", testReadRefused)
	test("ReadRevoked", testReadRevoked)
	test("ReadAbandoned", testReadAbandoned)
	test("Grants", testGrants)
	test("GrantsUnderPressure", testGrantsUnderPressure)
	test("Drained", testDrained)
	test("Wake", testWake)
	test("Park", testPark)
	test("WakeByLoss", testWakeByLoss)
	test("PeerCloses", testPeerCloses)
	test("PeerDies", testPeerDies)
	test("Disconnect", testDisconnect)
	test("GrantConnects", testGrantConnects)
	test("AllAtOnce", testAllAtOnce)
	test("FirstUse", testFirstUse)
	test("GivenUp", testGivenUp)
	test("Unwelcome", testUnwelcome)
	if !h.OwnAddress {
		test("Refused", testRefused)
		test("RefusedHello", testRefusedHello)
		test("Stranger", testStranger)
		test("Hostile", testHostile)
		test("HostileLength", testHostileLength)
		test("HostileLine", testHostileLine)
		test("HostileHello", testHostileHello)
		test("HostileNoise", testHostileNoise)
	}
	test("Closed", testClosed)
	test("Enough", testEnough)
	if !h.Tags {
		return
	}
	test("TagsExpected", testTagsExpected)
	test("TagsSizes", testTagsSizes)
	test("TagsMasks", testTagsMasks)
	test("TagsDormant", testTagsDormant)
	test("TagsCancel", testTagsCancel)
	test("TagsRndv", testTagsRndv)
	test("TagsLied", testTagsLied)
	h.runTags(t, seed)
}
