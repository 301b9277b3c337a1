package invariant

// A list of up to SmallList entries is checked completely each time, a larger one at every
// CheckEach-th check.
const (
	SmallList = 64
	CheckEach = 64
)

// Due reports whether the n-th check of a list covers all of its entries.
func Due(entries int, n uint32) bool { return Thorough || entries <= SmallList || n%CheckEach == 0 }
