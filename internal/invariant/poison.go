package invariant

// poisonMost is how much of a buffer PoisonStart overwrites: all of a large one would cost more
// than it tells.
const poisonMost = 4 << 10

// PoisonStart is Poison for buffers that may be large, of which it overwrites the beginning.
func PoisonStart(b []byte) { Poison(b[:min(len(b), poisonMost)]) }

// RequirePoison panics if somebody has written to b since PoisonStart. what names b.
func RequirePoison(b []byte, what string) {
	for i, v := range b[:min(len(b), poisonMost)] {
		if v != PoisonByte {
			Broken("poison", "byte %d of %s was written to after its life: %#x", i, what, v)
		}
	}
}
