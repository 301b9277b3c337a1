//go:build invariants

package soft

// Strict makes every breach of V11, V13, V14, V15 or V19 by the device's program a Violation, not
// an error: transports must not break these rules. It exists only in builds with -tags invariants,
// so that no interface has it.
func (d *Device) Strict() {
	d.cfg.tm.Strict = true
	d.inv.strict = true
}
