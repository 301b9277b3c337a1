package soft

import (
	"slices"

	"github.com/tagmatch/tagmatch/verbs/soft/internal/hook"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/loop"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/wire"
)

// init gives package softtest access; the functions are documented there.
func init() {
	hook.ID = func(dev any) wire.DeviceID { return dev.(*Device).self.ID }
	hook.Step = func(dev any) { dev.(*Device).step() }
	hook.Idle = func(dev any) bool { return dev.(*Device).idle() }
	hook.WithTM = func(cfg any, tm hook.TM) any { return cfg.(Config).withTM(tm) }
	hook.WithLimits = func(cfg any, l hook.Limits) any {
		c := cfg.(Config)
		c.limits = l
		return c
	}
	hook.WithoutDirect = func(cfg any) any {
		c := cfg.(Config)
		c.noDirect = true
		return c
	}
	hook.Refusals = func(dev any) uint64 { return dev.(*Device).rnrs }
	hook.CutShort = func(dev any) uint64 { return dev.(*Device).cuts }
	hook.Lines = func(dev any) int { return dev.(*Device).lines.count() }
	hook.QueuePairs = func(dev any) int { return dev.(*Device).queuePairs() }
	hook.WithHabits = func(cfg any, h hook.Habits) any {
		c := cfg.(Config)
		c.habits, c.limits = &h, h.Limits
		return c
	}
	hook.Early = func(dev any) uint64 { return dev.(*Device).nic.tooEarly() }
}

// step makes one pass in which loop wires receive although their fabric is Stepped.
func (d *Device) step() {
	defer d.enter("step")()
	d.stepping(true)
	d.progress(0)
	d.stepping(false)
}

// stepping sets Stepping in all loop wires.
func (d *Device) stepping(on bool) {
	for _, w := range d.wires {
		if l, ok := w.(*loop.Wire); ok {
			l.Stepping = on
		}
	}
}

// idle implements softtest.Idle.
func (d *Device) idle() bool {
	if len(d.work)+len(d.readers)+len(d.slow)+len(d.late)+len(d.events)+len(d.lines.waiting)+d.lines.told.len() != 0 {
		return false
	}
	return !slices.ContainsFunc(d.wires, func(w wire.Wire) bool { l, ok := w.(*loop.Wire); return !ok || l.Expects() })
}

// queuePairs is how many queue pairs exist.
func (d *Device) queuePairs() int { return len(d.qps) - 1 - len(d.freeQP) }
