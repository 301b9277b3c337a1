//go:build invariants

package mem

import (
	"github.com/tagmatch/tagmatch/internal/invariant"
	"github.com/tagmatch/tagmatch/verbs"
)

// Covers reports, by the records of the checks, whether region key is registered, has the rights in
// need and holds all of b.
func (t *Table) Covers(key uint32, b []byte, need verbs.AccessFlags) bool {
	return t.inv.covers(key, b, need)
}

// checks are records of a Table's regions beside its own.
type checks struct {
	live map[uint32]check  // by key
	gens map[uint32]uint32 // by index: generation of the last key
}

type check struct {
	data   []byte
	access verbs.AccessFlags
}

func newChecks() *checks {
	return &checks{live: map[uint32]check{}, gens: map[uint32]uint32{}}
}

func (c *checks) registered(r *Region) {
	i, gen := r.key&IndexMask, r.key>>IndexBits
	_, live := c.live[r.key]
	invariant.Check(!live && gen != 0, "region", "key %#x is given out, live already: %v", r.key, live)
	last := c.gens[i]
	invariant.Check(gen > last || gen == 1 && last == 1<<(32-IndexBits)-1, "region",
		"generation %d of region %d follows generation %d: a peer's late request could hit it", gen, i, last)
	c.gens[i] = gen
	c.live[r.key] = check{r.buf, r.access}
	invariant.Check(r.t.live == len(c.live), "region", "%d regions are counted, %d live", r.t.live, len(c.live))
}

func (c *checks) removed(rkey uint32) { delete(c.live, rkey) }

func (c *checks) covers(key uint32, b []byte, need verbs.AccessFlags) bool {
	r, ok := c.live[key]
	return ok && r.access&need == need && Contains(r.data, b)
}
