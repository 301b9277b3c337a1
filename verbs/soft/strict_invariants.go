//go:build invariants

package soft

// Strict says that the device's host is a transport, whose every breach of V11, V13, V14, V15 and
// V19 is a Violation, not an error. Only in builds with -tags invariants, which is why no interface
// has it.
func (d *Device) Strict() {
	d.cfg.tm.Strict = true
	d.inv.strict = true
}
