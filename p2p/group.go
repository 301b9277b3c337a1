package p2p

import (
	"cmp"
	"slices"
)

// group is an ordered set of ranks of the World, constant once made. A nil group is that of all
// ranks in their order. The tags of a Comm name the rank in the World, since a device can tell the
// sender of a message by its tag alone: so only the status of a message needs a group.
type group struct {
	members []int   // by rank in the group: the rank in the World
	low     int     // the lowest of members
	ranks   []int32 // by rank in the World, from low on: the rank in the group, or ProcNull
}

// newGroup makes a group of these ranks of a World of size ranks, which are all different.
func newGroup(members []int, size int) *group {
	if len(members) == size && slices.IsSorted(members) {
		return nil
	}
	low := slices.Min(members)
	g := &group{members: members, low: low, ranks: make([]int32, slices.Max(members)-low+1)}
	for i := range g.ranks {
		g.ranks[i] = ProcNull
	}
	for rank, world := range members {
		g.ranks[world-low] = int32(rank)
	}
	return g
}

// world is the rank in the World of a rank of the group.
func (g *group) world(rank int) int {
	if g == nil {
		return rank
	}
	return g.members[rank]
}

// rank is the rank in the group of a rank in the World, or ProcNull where it is not a member.
func (g *group) rank(world int) int {
	if uint(world-g.low) >= uint(len(g.ranks)) {
		return ProcNull
	}
	return int(g.ranks[world-g.low])
}

// Contains reports whether a rank in the World is a member; it is for the engine, see
// progress.Members.
func (g *group) Contains(world int) bool { return g.rank(world) != ProcNull }

// members is a group as contexts.Group.
type members struct {
	group *group
	size  int
}

func (m members) Size() int               { return m.size }
func (m members) World(rank int) int      { return m.group.world(rank) }
func (m members) Contains(world int) bool { return m.group == nil || m.group.Contains(world) }

// place is what a rank says of itself in a Split.
type place struct {
	color, key int64
}

// subgroup is the ranks of a Comm whose color is that of rank self, by key and then by rank, as
// ranks of the World. group is that of the Comm.
func subgroup(places []place, self int, g *group) []int {
	var ranks []int
	for r := range places {
		if places[r].color == places[self].color {
			ranks = append(ranks, r)
		}
	}
	slices.SortStableFunc(ranks, func(a, b int) int { return cmp.Compare(places[a].key, places[b].key) })
	for i, r := range ranks {
		ranks[i] = g.world(r)
	}
	return ranks
}
