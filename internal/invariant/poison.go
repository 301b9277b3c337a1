package invariant

// poisonMost is how much of a buffer PoisonStart overwrites: all of a large one would take too
// long.
const poisonMost = 4 << 10

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
