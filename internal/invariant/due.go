package invariant

// A list of up to SmallList entries is looked at whole at each check, a larger one at every
// CheckEach-th.
const (
	SmallList = 64
	CheckEach = 64
)

// Due tells whether the n-th check of a list looks at all of its entries.
func Due(entries int, n uint32) bool { return Thorough || entries <= SmallList || n%CheckEach == 0 }
