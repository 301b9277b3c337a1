//go:build invariants

package soft

import "github.com/tagmatch/tagmatch/verbs/soft/internal/hook"

// Strict makes every breach of V11, V13, V14, V15 or V19 by the device's program a Violation, not
// an error: transports must not break these rules. SRQs that exist keep theirs. It exists only in
// builds with -tags invariants, so that no interface has it.
func (d *Device) Strict() {
	var tm hook.TM
	if d.cfg.tmFaults != nil {
		tm = *d.cfg.tmFaults
	}
	tm.Strict = true
	d.cfg.tmFaults, d.inv.strict = &tm, true
}
