package trace

import (
	"math/bits"
	"slices"
)

// Ring is where an engine writes records; the newest are kept.
type Ring struct {
	Records []Record // their number is a power of two, at least Least
	Count   *uint64  // how many were written
}

// Least and Most are the fewest and the most records of a Ring: 4 KiB and 256 MiB.
const (
	Least = 1 << 6
	Most  = 1 << 22
)

// NewRing makes a Ring of at least so many records, where that is at most Most.
func NewRing(records int) Ring {
	records = min(max(records, Least), Most)
	return Ring{make([]Record, 1<<bits.Len(uint(records-1))), new(uint64)}
}

// Newest is the records that are kept, in order, and how many older ones are not.
func (r Ring) Newest() (list []Record, lost uint64) {
	n, size := *r.Count, uint64(len(r.Records))
	if n <= size {
		return r.Records[:n], 0
	}
	oldest := n % size
	return slices.Concat(r.Records[oldest:], r.Records[:oldest]), n - size
}
