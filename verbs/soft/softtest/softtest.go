// Package softtest is for tests and simulations: it configures tag matching of software devices,
// injects faults, makes devices run ahead of their programs or lie to their peers, and reads their
// counters.
package softtest

import (
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

// WithoutDirect returns cfg with a shm wire that never reads or writes peers' memory directly, as
// where the kernel forbids it.
func WithoutDirect(cfg soft.Config) soft.Config { return hook.WithoutDirect(cfg).(soft.Config) }

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

// Break cuts the link between two devices. Packets on their way are lost. Any goroutine may call
// it.
func Break(f *soft.Fabric, a, b *soft.Device) { loop.Break(f, hook.ID(a), hook.ID(b)) }

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
