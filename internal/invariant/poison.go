//go:build invariants

package invariant

// PoisonStart is Poison for the beginning of a buffer that may be large.
func PoisonStart(b []byte) { Poison(b[:min(len(b), poisonMost)]) }

// RequirePoison panics if b was written to since PoisonStart. what names b.
func RequirePoison(b []byte, what string) {
	for i, v := range b[:min(len(b), poisonMost)] {
		if v != PoisonByte {
			Broken("poison", "byte %d of %s was written to after its life: %#x", i, what, v)
		}
	}
}
