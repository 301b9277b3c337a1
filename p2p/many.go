package p2p

import "slices"

// Transfer is one message of IsendAll or IrecvAll.
type Transfer struct {
	Rank int    // the destination, or the source
	Tag  Tag    // as that of Isend, or of Irecv
	Buf  []byte // the library's until its request is reported
}

// IsendAll starts a send for each Transfer, in their order, as Isend does, and appends their
// requests to reqs. Many small messages cost less by one call for all than by one call each;
// WaitAll, or a Queue, completes many at once. A Transfer with wrong arguments gives a request that
// reports them, and the others are started. ts is read during the call only.
func (c *Comm) IsendAll(reqs []Request, ts []Transfer) []Request {
	next, reqs := extend(reqs, len(ts))
	p := c.w.eng.Poster()
	defer p.Done()
	for i := range ts {
		t, r := &ts[i], &next[i]
		if uint(t.Rank) >= c.ranks() || t.Tag > MaxCommTag {
			p.Done() // which has the lock
			*r = c.refusedSend(t.Rank, t.Tag)
			p = c.w.eng.Poster()
			continue
		}
		r.group, r.tag = c.group, t.Tag
		p.Isend(c.group.world(t.Rank), c.pack(t.Tag), t.Buf, mark(t.Rank, 1), &r.r)
	}
	return reqs
}

// IrecvAll starts a receive for each Transfer, in their order, as Irecv does. See IsendAll.
func (c *Comm) IrecvAll(reqs []Request, ts []Transfer) []Request {
	next, reqs := extend(reqs, len(ts))
	p := c.w.eng.Poster()
	defer p.Done()
	for i := range ts {
		t, r := &ts[i], &next[i]
		from, want, mask, ok := c.wanted(t.Rank, t.Tag)
		if !ok {
			p.Done() // which has the lock
			*r = c.refusedRecv(t.Rank, t.Tag)
			p = c.w.eng.Poster()
			continue
		}
		*r = ofRecv(p.Irecv(from, want, mask, t.Buf), c.group, t.Rank, t.Tag)
	}
	return reqs
}

// extend appends n requests to reqs, which the caller sets; next are those.
func extend(reqs []Request, n int) (next, all []Request) {
	all = slices.Grow(reqs, n)[:len(reqs)+n]
	return all[len(reqs):], all
}
