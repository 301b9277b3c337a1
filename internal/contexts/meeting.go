package contexts

import "github.com/tagmatch/tagmatch/progress"

// Meetings: ranks that make a Comm of themselves alone have none to vote in. They vote in one that
// has no context, which its ranks know by their list, so that nothing has to be agreed on before.
// It lives as long as the World: a rank that comes back to it has to know its last ballot.

// Meeting is the Context of a Comm that is only a meeting: above all contexts, and made of its ID.
func Meeting(id uint64) int { return max + int(id>>2) }

// Meet opens a meeting, or does nothing where it is open.
func (cs *Contexts) Meet(e progress.Callback, c *Comm) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if cs.live[c.Context] == nil {
		cs.open(e, &liveContext{comm: c, root: c.Group.World(0)})
	}
}

// Elsewhere is the first of a meeting's ranks that was heard of in another one, to which this rank
// has not come, or none.
func (cs *Contexts) Elsewhere(c *Comm) int {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	for rank := range c.Group.Size() {
		world := c.Group.World(rank)
		if context, ok := cs.elsewhere[world]; ok && cs.live[context] == nil {
			return world
		}
	}
	return none
}
