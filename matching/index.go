package matching

import "slices"

const (
	// scanFree is how far a scan costs no more than a probe of an index. A
	// queue no longer than this is scanned, whatever indexes there are, and
	// such use does not keep an index alive.
	scanFree = 16

	// buildCost is the cost of indexing a message in units of scanning one.
	buildCost = 8

	// maxIndexes bounds the memory (24 bytes a message and index, and the
	// buckets) and the work of each Add.
	maxIndexes = 16

	// maxDebts is how many masks without an index are kept account of.
	maxDebts = 32

	// idleFloor keeps short queues from dropping and building all the time.
	idleFloor = 1024
)

// index finds messages by tag&mask. Its links lie parallel to the slab's.
type index struct {
	table
	mask  uint64
	links links
	idle  int // messages added since it was last of use
}

func (x *index) add(i uint32, tag uint64) {
	c := int(i >> chunkBits)
	if c >= len(x.links) || x.links[c] == nil {
		x.growLinks(c)
	}
	x.push(x.links, i, tag&x.mask, 0)
}

func (x *index) growLinks(c int) {
	for c >= len(x.links) {
		x.links = append(x.links, nil)
	}
	x.links[c] = new([chunkSize]link)
}

// debt is the cost of scans that receives with a mask have caused.
type debt struct {
	mask uint64
	work int
}

// indexes is the set of indexes by mask, and the costs that decide about them. The rule is that of
// the ski rental problem, twice: an index is built once scanning has cost as much as building it,
// and dropped once keeping it unused has cost as much. So the cost stays within a small factor of
// the optimum for any sequence of receives, without a clock.
type indexes struct {
	built []*index
	debts []debt
}

func (xs *indexes) index(mask uint64) *index {
	for _, x := range xs.built {
		if x.mask == mask {
			return x
		}
	}
	return nil
}

// charge adds the cost of a scan, and reports whether an index over n messages is due. When all
// debts are in use the smallest is taken over, its amount included, so that no mask in heavy use is
// overlooked.
func (xs *indexes) charge(mask uint64, work, n int) bool {
	d := xs.account(mask)
	d.work += work
	if d.work < buildCost*n {
		return false
	}
	last := len(xs.debts) - 1
	*d = xs.debts[last]
	xs.debts = xs.debts[:last]
	return true
}

func (xs *indexes) account(mask uint64) *debt {
	least := 0
	for k := range xs.debts {
		if xs.debts[k].mask == mask {
			return &xs.debts[k]
		}
		if xs.debts[k].work < xs.debts[least].work {
			least = k
		}
	}
	if len(xs.debts) < maxDebts {
		xs.debts = append(xs.debts, debt{})
		least = len(xs.debts) - 1
	}
	xs.debts[least].mask = mask
	return &xs.debts[least]
}

// install adds a new index; it replaces the least used where there are enough.
func (xs *indexes) install(x *index) {
	if len(xs.built) < maxIndexes {
		xs.built = append(xs.built, x)
		return
	}
	worst := 0
	for k, y := range xs.built {
		if y.idle > xs.built[worst].idle {
			worst = k
		}
	}
	xs.built[worst] = x
}

// age is told that n messages have come, and drops indexes that are not used: also if n are many,
// not before it is told again.
func (q *unexpected) age(n int) {
	limit := 2*q.n + idleFloor
	q.built = slices.DeleteFunc(q.built, func(x *index) bool {
		x.idle += min(n, idleFloor/2)
		return x.idle > limit
	})
}

// indexAdd adds a message to all indexes.
func (q *unexpected) indexAdd(i uint32, tag uint64) {
	for _, x := range q.built {
		x.add(i, tag)
	}
}

func (q *unexpected) indexRemove(i uint32) {
	for _, x := range q.built {
		x.remove(x.links, i)
	}
}

// indexDrop frees the indexes' part of a chunk that the slab has freed.
func (q *unexpected) indexDrop(c uint32) {
	for _, x := range q.built {
		if int(c) < len(x.links) {
			x.links[c] = nil
		}
	}
}
