package diagnose

import "slices"

// graph is who waits for whom, of the members that cannot go on as far as the last look shows. Its
// nodes are the members, then the ranks that have not answered, then one that stands for all of
// them, then one for each set of ranks that a meeting waits for: so it has no more edges than the
// states have entries.
type graph struct {
	members, absent int
	edges, back     [][]int
	group           []int  // by node: its strongly connected component
	root            []bool // by component: nothing leads out of it
}

// newGraph draws it. Where those that a meeting waits for include some that wait for good, only
// these count: the others do not help.
func (j *job) newGraph(waits [][]wait, lax, strict *solution) *graph {
	g := &graph{members: len(j.members), absent: len(j.absent)}
	g.edges = make([][]int, g.everybody()+1)
	needs, anybody := map[*need]int{}, false
	for i := range j.members {
		if lax.able[i] {
			continue
		}
		for k := range waits[i] {
			w := &waits[i][k]
			if w.need == nil {
				g.edges[i] = append(g.edges[i], j.helpers(w)...)
				anybody = anybody || w.anyOf
				continue
			}
			at, known := needs[w.need]
			if !known {
				at = len(g.edges)
				needs[w.need] = at
				g.edges = append(g.edges, j.missing(w.need, lax, strict))
			}
			g.edges[i] = append(g.edges[i], at)
		}
	}
	for i := range j.members {
		if anybody {
			g.edges[g.everybody()] = append(g.edges[g.everybody()], i)
		}
	}
	g.reverse()
	g.components()
	return g
}

// everybody is the node that stands for all members.
func (g *graph) everybody() int { return g.members + g.absent }

// helpers is the nodes of those that can satisfy a receive or a send.
func (j *job) helpers(w *wait) []int {
	nodes := slices.Clone(w.sources)
	for _, r := range w.away {
		if at, listed := j.away[r]; listed {
			nodes = append(nodes, len(j.members)+at)
		}
	}
	if w.anyOf {
		nodes = append(nodes, len(j.members)+len(j.absent))
	}
	return nodes
}

// missing is the nodes of those that a meeting waits for.
func (j *job) missing(n *need, lax, strict *solution) []int {
	var dead, rest []int
	for _, i := range n.members {
		if !strict.able[i] {
			dead = append(dead, i)
		} else if !lax.able[i] {
			rest = append(rest, i)
		}
	}
	if len(dead) != 0 {
		return dead
	}
	for _, r := range n.away {
		if at, listed := j.away[r]; listed {
			rest = append(rest, len(j.members)+at)
		}
	}
	return rest
}

func (g *graph) reverse() {
	g.back = make([][]int, len(g.edges))
	for from, tos := range g.edges {
		for _, to := range tos {
			g.back[to] = append(g.back[to], from)
		}
	}
}

// components finds the strongly connected components (Tarjan), without recursion: a chain of waits
// can be as long as the job.
func (g *graph) components() {
	n := len(g.edges)
	g.group = make([]int, n)
	order, low, next := make([]int, n), make([]int, n), make([]int, n)
	var path, stack []int
	count := 0
	for start := range n {
		if order[start] != 0 {
			continue
		}
		path = append(path[:0], start)
		for len(path) != 0 {
			v := path[len(path)-1]
			if order[v] == 0 {
				count++
				order[v], low[v] = count, count
				stack = append(stack, v)
			}
			if next[v] < len(g.edges[v]) {
				to := g.edges[v][next[v]]
				next[v]++
				if order[to] == 0 {
					path = append(path, to)
				} else if g.group[to] == 0 { // it is on the stack
					low[v] = min(low[v], order[to])
				}
				continue
			}
			path = path[:len(path)-1]
			if len(path) != 0 {
				low[path[len(path)-1]] = min(low[path[len(path)-1]], low[v])
			}
			if low[v] == order[v] {
				stack = g.close(v, stack)
			}
		}
	}
}

// close takes a component off the stack. They are numbered from 1 on; those that a component leads
// to have been closed before it.
func (g *graph) close(v int, stack []int) []int {
	if len(g.root) == 0 {
		g.root = append(g.root, false) // no component has number 0
	}
	c, at := len(g.root), len(stack)
	for {
		at--
		g.group[stack[at]] = c
		if stack[at] == v {
			break
		}
	}
	root := true
	for _, u := range stack[at:] {
		for _, to := range g.edges[u] {
			root = root && g.group[to] == c
		}
	}
	g.root = append(g.root, root)
	return stack[:at]
}

// roots lists the nodes of members and absent ranks of each component that nothing leads out of,
// and that somebody waits in, or for. They come by their first node.
func (g *graph) roots() [][]int {
	by := map[int]int{}
	var roots [][]int
	for v := range g.members + g.absent {
		c := g.group[v]
		if !g.root[c] || len(g.back[v]) == 0 && len(g.edges[v]) == 0 {
			continue
		}
		at, known := by[c]
		if !known {
			at = len(roots)
			by[c] = at
			roots = append(roots, nil)
		}
		roots[at] = append(roots[at], v)
	}
	return roots
}

// waiter is a member that waits for a node itself, where one does.
func (g *graph) waiter(v int) (i int, found bool) {
	for _, from := range g.back[v] {
		if from < g.members {
			return from, true
		}
	}
	for _, from := range g.back[v] { // it stands for a set of ranks, or all
		if back := g.back[from]; len(back) != 0 {
			return back[0], true
		}
	}
	return 0, false
}

// waiters lists the members that wait for one of these nodes, over others or directly, in order of
// their ranks.
func (g *graph) waiters(nodes []int) []int {
	seen := make(map[int]bool, len(nodes))
	queue := slices.Clone(nodes)
	for _, v := range nodes {
		seen[v] = true
	}
	var found []int
	for len(queue) != 0 {
		v := queue[len(queue)-1]
		queue = queue[:len(queue)-1]
		for _, from := range g.back[v] {
			if !seen[from] {
				seen[from] = true
				queue = append(queue, from)
				if from < g.members {
					found = append(found, from)
				}
			}
		}
	}
	slices.Sort(found)
	return found
}
