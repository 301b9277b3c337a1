package coll

import "slices"

// team is the ranks among whom a part of an operation runs: all members of the Group, or some. An
// algorithm sees the ranks of its team alone, from 0 on.
type team struct {
	rank    int   // of this member in the team
	size    int   // how many they are
	members []int // of the Group, by rank in the team; nil: all
}

// member is a rank of the team in the Group.
func (t team) member(rank int) int {
	if t.members == nil {
		return rank
	}
	return t.members[rank]
}

// among runs f in a team.
func (c *call) among(t team, f func(*call) error) error {
	whole := c.team
	c.team = t
	err := f(c)
	c.team = whole
	return err
}

// layout is the teams of this member where several hosts have as many members each, more than one:
// those on its host, and those that are as many members of their hosts before them as it is. In
// other Groups the first is all members, and the second this member.
type layout struct {
	inside, across team
	hosts          [][]int // the members, by host and place; nil where they are not such
	inOrder        bool    // the members of each host follow each other
}

// newLayout makes the layout of a member of n ranks on hosts that hostOf tells apart.
func newLayout(rank, n int, hostOf func(rank int) int) layout {
	l := layout{inside: team{rank: rank, size: n}, across: team{size: 1, members: []int{rank}}, inOrder: true}
	var hosts [][]int
	place, number := map[int]int{}, map[int]int{} // of a rank on its host, of a host
	for r := range n {
		h, known := number[hostOf(r)]
		if !known {
			h = len(hosts)
			number[hostOf(r)] = h
			hosts = append(hosts, nil)
		}
		l.inOrder = l.inOrder && h == len(hosts)-1
		place[r] = len(hosts[h])
		hosts[h] = append(hosts[h], r)
	}
	own, here := number[hostOf(rank)], place[rank]
	differs := func(members []int) bool { return len(members) != len(hosts[own]) }
	if len(hosts) == 1 || len(hosts[own]) == 1 || slices.ContainsFunc(hosts, differs) {
		return l
	}
	l.hosts, l.inside, l.across = hosts, team{rank: here, size: len(hosts[own]), members: hosts[own]}, team{rank: own, size: len(hosts)}
	for _, members := range hosts {
		l.across.members = append(l.across.members, members[here])
	}
	return l
}

// usable reports whether c can go by hosts: operands are to be combined in the order of ranks.
func (l *layout) usable(c *call) bool {
	return l.hosts != nil && (c.op.combine == nil || c.op.commutative || l.inOrder)
}

// allReduceHosts reduces inside each host, so that each member there has a block; combines that
// with the same blocks of the other hosts; and spreads it inside the host. So a vector goes once
// from each host to the others, by all its members side by side.
func allReduceHosts(c *call) error {
	l := &c.g.layout
	if !l.usable(c) {
		return reduceDirect(c)
	}
	whole := c.in
	var own []byte
	err := c.among(l.inside, func(c *call) error {
		b := c.blocks(whole)
		own = b.block(c.rank())
		return c.reduceBlocks(b, own)
	})
	if err != nil {
		return err
	}
	c.in = own
	err = c.among(l.across, func(c *call) error { return c.choose(flatAllReduce)(c) })
	c.in = whole
	if err != nil {
		return err
	}
	return c.among(l.inside, func(c *call) error { return c.share(c.blocks(whole).block) })
}

// share has each rank send its block to all others.
func (c *call) share(blockOf func(rank int) []byte) error {
	for i := range c.size() - 1 {
		from := c.shifted(-i - 1)
		c.irecv(from, blockOf(from))
	}
	for i := range c.size() - 1 {
		c.isend(c.shifted(i+1), blockOf(c.rank()))
	}
	return c.waitAll()
}

// allGatherHosts has each member send its block to one of each other host; inside a host they pass
// on what they have got.
func allGatherHosts(c *call) error {
	l := &c.g.layout
	if !l.usable(c) {
		return allGatherDirect(c)
	}
	b := c.ofRanks(c.out)
	copy(b.block(c.rank()), c.in)
	err := c.among(l.across, func(c *call) error {
		return c.share(func(rank int) []byte { return b.block(c.team.member(rank)) })
	})
	if err != nil {
		return err
	}
	return c.among(l.inside, func(c *call) error {
		for i := 1; i < c.size(); i++ {
			for _, members := range l.hosts {
				c.irecv(c.shifted(-i), b.block(members[c.shifted(-i)]))
			}
		}
		for i := 1; i < c.size(); i++ {
			for _, members := range l.hosts {
				c.isend(c.shifted(i), b.block(members[c.rank()]))
			}
		}
		return c.waitAll()
	})
}
