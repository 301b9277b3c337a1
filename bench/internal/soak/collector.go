package soak

import (
	"slices"

	"github.com/tagmatch/tagmatch/p2p"
)

// collector waits for receives that end in any order, by one of the calls that there are for that.
type collector struct {
	x     *exchange
	reqs  []p2p.Request // inactive where queue has the request, or the place is free
	posts []posted
	taken []bool
	free  []int
	busy  int
	queue *p2p.Queue // nil: not used
	ends  []p2p.Completion
}

// collector makes one for as many receives at a time.
func (x *exchange) collector(window int) *collector {
	c := &collector{x: x, reqs: make([]p2p.Request, window), posts: make([]posted, window), taken: make([]bool, window),
		ends: make([]p2p.Completion, 1+x.rng.IntN(window))}
	for i := range window {
		c.free = append(c.free, i)
	}
	if x.rng.IntN(2) == 0 {
		c.queue = x.w.NewQueue(window)
	}
	return c
}

func (c *collector) close() {
	if c.queue != nil {
		c.queue.Close()
	}
}

// add takes over a request.
func (c *collector) add(r p2p.Request, p posted) {
	i := c.free[len(c.free)-1]
	c.free = c.free[:len(c.free)-1]
	c.posts[i], c.taken[i] = p, true
	c.busy++
	if c.queue != nil {
		r.Notify(c.queue, uint64(i))
		return
	}
	c.reqs[i] = r
}

// some waits for at least one receive.
func (c *collector) some(got func(p *posted, st p2p.Status) error) error {
	n, err := c.wait()
	if err != nil {
		return c.x.overdue(err, c.reqs, func(i int) int { return c.posts[i].m.src })
	}
	for _, e := range c.ends[:n] {
		if e.Err != nil {
			return e.Err
		}
		i := int(e.Data)
		if err := got(&c.posts[i], e.Status); err != nil {
			return err
		}
		c.posts[i], c.taken[i] = posted{}, false
		c.free = append(c.free, i)
		c.busy--
	}
	return nil
}

// wait fills ends, and returns how many there are.
func (c *collector) wait() (int, error) {
	x := c.x
	switch {
	case c.queue != nil:
		return c.queue.Wait(x.ctx, c.ends)
	case x.rng.IntN(2) == 0:
		return p2p.WaitSome(x.ctx, c.reqs, c.ends)
	case x.rng.IntN(2) == 0:
		i, st, err := p2p.WaitAny(x.ctx, c.reqs)
		c.ends[0] = p2p.Completion{Data: uint64(max(i, 0)), Status: st}
		return 1, err
	}
	i := slices.Index(c.taken, true)
	st, err := c.reqs[i].Wait(x.ctx)
	c.ends[0] = p2p.Completion{Data: uint64(i), Status: st}
	return 1, err
}
