// Package softtest is for tests and simulations: it configures tag matching of software devices,
// injects faults, makes devices run ahead of their programs or lie to their peers, and reads their
// counters.
package softtest

import (
	"os"
	"time"

	"github.com/tagmatch/tagmatch/internal/secure"
	"github.com/tagmatch/tagmatch/verbs/soft"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/hook"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/loop"
)

// TM configures tag matching of a device: limits, behaviour that the specification leaves open, and
// faults.
type TM = hook.TM

// WithTM returns cfg with tag matching configured by tm.
func WithTM(cfg soft.Config, tm TM) soft.Config { return hook.WithTM(cfg, tm).(soft.Config) }

// Limits are lower limits of a device than its own, which NICs have: of completions in a queue, and
// of the memory that can be registered.
type Limits = hook.Limits

// WithLimits returns cfg with these limits.
func WithLimits(cfg soft.Config, l Limits) soft.Config { return hook.WithLimits(cfg, l).(soft.Config) }

// WithoutDirect returns cfg with a shm wire that never reads or writes peers' memory directly, as
// where the kernel forbids it.
func WithoutDirect(cfg soft.Config) soft.Config { return hook.WithoutDirect(cfg).(soft.Config) }

// Habits are what network adapters do and a software device does not, each by itself.
type Habits = hook.Habits

// WithHabits returns cfg with such habits.
func WithHabits(cfg soft.Config, h Habits) soft.Config { return hook.WithHabits(cfg, h).(soft.Config) }

// NIC returns cfg with all habits: what works on such a device should work on a network adapter.
func NIC(cfg soft.Config) soft.Config { return WithHabits(cfg, nic) }

// AllHabits returns the habits of NIC.
func AllHabits() Habits { return nic }

var nic = Habits{NoReadFaults: true, StaleState: true, NoEvents: true, Silence: 20, LateFlush: 7, Early: true, Slow: time.Millisecond,
	NoLending: true, MaxInline: 128, Limits: Limits{RegBytes: 256 << 20, MaxCQE: 1<<15 - 1}, Tags: true}

// NICs is an environment variable of tests, see NICsByEnvironment.
const NICs = "TAGMATCH_TEST_NIC"

// NICsByEnvironment gives all devices that the process opens from now on the habits of NIC, if NICs
// is set, and reports whether it is. It is for TestMain.
func NICsByEnvironment() bool {
	if os.Getenv(NICs) == "" {
		return false
	}
	hook.Everywhere = &nic
	return true
}

// EachHabit returns the habits of NIC by their names, each by itself.
func EachHabit() map[string]Habits {
	return map[string]Habits{
		"reads": {NoReadFaults: nic.NoReadFaults}, "state": {StaleState: nic.StaleState}, "events": {NoEvents: nic.NoEvents},
		"silence": {Silence: nic.Silence}, "late flush": {LateFlush: nic.LateFlush}, "early packets": {Early: nic.Early},
		"memory": {NoLending: nic.NoLending, MaxInline: nic.MaxInline, Limits: nic.Limits},
		"slow":   {Slow: nic.Slow}, "tags": {Tags: nic.Tags},
	}
}

// Early returns to how many queue pairs packets came before they were in RTR (Habits.Early).
func Early(d *soft.Device) uint64 { return hook.Early(d) }

// WithTLS returns cfg with TLS by the job's secret for the tcp wire.
func WithTLS(cfg soft.Config) soft.Config {
	s, err := secure.Parse(secure.Secret)
	if err == nil {
		cfg.TLS, err = s.Load()
	}
	if err != nil {
		panic(err) // it needs nothing but random numbers
	}
	return cfg
}

// FabricOptions make a fabric delay, reorder, split and refuse packets, by a seed, or wait for
// Step.
type FabricOptions = loop.Options

// NewFabric makes such a fabric, without devices.
func NewFabric(opts FabricOptions) *soft.Fabric { return loop.NewFabric(opts) }

// Calm has a fabric deliver everything at the receiver's next poll for a while, whatever its
// options are, without a random decision: those that follow are as if nothing had been sent.
func Calm(f *soft.Fabric, calm bool) { loop.Calm(f, calm) }

// Break cuts the link between two devices, and reports whether there was one. Packets on their way
// are lost. Any goroutine may call it.
func Break(f *soft.Fabric, a, b *soft.Device) bool { return loop.Break(f, hook.ID(a), hook.ID(b)) }

// Kill breaks all links of a device, as the end of its process would. After that the device can
// only destroy its objects. Any goroutine may call it.
func Kill(f *soft.Fabric, d *soft.Device) { loop.Kill(f, hook.ID(d)) }

// Step makes one pass of a device without its program: completions go into the rings of their
// queues. The device's owner calls it.
func Step(d *soft.Device) { hook.Step(d) }

// Idle reports whether a device on the loop wire has nothing to do until something is posted or a
// peer sends. It does not look for completions in the rings of their queues. The device's owner
// calls it.
func Idle(d *soft.Device) bool { return hook.Idle(d) }

// Refusals returns how often a message found no receive (RNR). Each retry counts.
func Refusals(d *soft.Device) uint64 { return hook.Refusals(d) }

// CutShort returns how many messages were reported as matched and never became complete, since
// their queue pair failed.
func CutShort(d *soft.Device) uint64 { return hook.CutShort(d) }

// Lines returns how many lines a device has (verbs.Device.Tell) that have not ended. The device's
// owner calls it.
func Lines(d *soft.Device) int { return hook.Lines(d) }

// QueuePairs returns how many queue pairs a device has. The device's owner calls it.
func QueuePairs(d *soft.Device) int { return hook.QueuePairs(d) }
