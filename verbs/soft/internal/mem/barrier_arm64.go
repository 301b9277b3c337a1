package mem

// LoadBarrier has all loads before it done before those behind it. An atomic load alone is a
// barrier for what is behind it only.
func LoadBarrier()
