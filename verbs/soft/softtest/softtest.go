// Package softtest is what tests and simulations do with software devices beyond the device
// contract: choose how they match tags, cut links, let devices die, let them run ahead of their
// hosts, look at what they have refused.
package softtest

import (
	"time"

	"github.com/tagmatch/tagmatch/verbs/soft"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/hook"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/loop"
)

// TM is how tag matching works on a device: limits, behaviour that the sources leave open, and
// faults.
type TM = hook.TM

// WithTM is cfg with tag matching as tm says.
func WithTM(cfg soft.Config, tm TM) soft.Config { return hook.WithTM(cfg, tm).(soft.Config) }

// Break cuts the link between two devices; packets on their way are lost. Any goroutine.
func Break(f *soft.Fabric, a, b *soft.Device) { loop.Break(f, hook.ID(a), hook.ID(b)) }

// Kill lets a device die as a process does: its peers lose their links; it must not be used
// afterwards except to destroy its objects. Any goroutine.
func Kill(f *soft.Fabric, d *soft.Device) { loop.Kill(f, hook.ID(d)) }

// Advance moves a fabric's virtual clock. Any goroutine.
func Advance(f *soft.Fabric, d time.Duration) { loop.Advance(f, d) }

// Step makes a device work once without its host: completions wait in their queues until they are
// polled. By whoever owns the device.
func Step(d *soft.Device) { hook.Step(d) }

// Idle tells whether a device on Fabrics has nothing to do and nothing to say until something is
// posted or a peer sends: polls and Steps would find nothing. Completions that wait in their queues
// are the host's to look for. By whoever owns the device.
func Idle(d *soft.Device) bool { return hook.Idle(d) }

// Refusals is how often a message found no receive and had to wait (RNR); every try counts.
func Refusals(d *soft.Device) uint64 { return hook.Refusals(d) }

// CutShort is how many messages had a match and never came whole, since their queue pair failed.
func CutShort(d *soft.Device) uint64 { return hook.CutShort(d) }
