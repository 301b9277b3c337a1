//go:build invariants

package unexpected

import (
	"iter"
	"maps"
	"math"
	"slices"

	"github.com/tagmatch/tagmatch/internal/invariant"
	"github.com/tagmatch/tagmatch/matching"
)

// queueCheck is what a Queue's checks need.
type queueCheck struct {
	matches uint32                // calls of Match
	out     map[*Message]struct{} // that Match has taken out and nobody has dropped
	names   map[requestName]nameUse
}

// checkCost is what the checks take for a request, bytes.
const checkCost = 80

// requestName is what a rank calls a request.
type requestName struct {
	src  int32
	name uint32
}

// nameUse is how many requests of a name there are, and whether there were several at once: a peer
// may give that to requests, at its own expense. Then one of them is found, or none.
type nameUse struct {
	n     int
	twice bool
}

// Nonsense that is told from what is meant.
const (
	poisonRank = -0x24242425
	poisonWord = 0xdbdbdbdbdbdbdbdb
	poisonHalf = 0xdbdbdbdb
)

// free reports whether a record is in the free list.
func (m *Message) free() bool { return m.Src == poisonRank }

// checkUnused looks at a record that comes out of the free list: nobody has touched it there.
func (m *Message) checkUnused() {
	invariant.Check(m.free() && m.Seq == poisonWord && m.Name == poisonHalf && m.Data == nil && m.prev == nil,
		"poison", "a message in the pool was written to")
}

func (m *Message) poison() {
	invariant.Check(!m.free(), "pool", "a message is freed twice")
	invariant.Check(m.prev == nil && m.next == nil, "list", "message %d of %d is freed in a list", m.Seq, m.Src)
	*m = Message{Src: poisonRank, Tag: poisonWord, Seq: poisonWord, handle: matching.Handle(poisonWord),
		Request: Request{Name: poisonHalf, RKey: poisonHalf, Addr: poisonWord, Len: poisonWord}}
}

// poisonBuffer ends the life of a message's buffer.
func poisonBuffer(buf []byte) { invariant.Poison(buf[:cap(buf)]) }

// checkPoisoned finds what was written into a buffer after it was given back.
func checkPoisoned(buf []byte) {
	buf = buf[:cap(buf)]
	i := slices.IndexFunc(buf, func(b byte) bool { return b != invariant.PoisonByte })
	invariant.Check(i < 0, "poison", "byte %d of %d of a free message buffer was written to", i, len(buf))
}

// match is V1 and V3 of a receive: m is the message that it gets, out of the queue, or nil. What
// is left is looked at once more, from the front: that needs no table, hash or index.
func (c *queueCheck) match(q *Queue, tag, mask uint64, m *Message) {
	before := uint64(math.MaxUint64)
	if m != nil {
		invariant.Check(!m.free(), "V3", "a receive with tag %#x gets a message that another has had", tag)
		invariant.Check((m.Tag^tag)&mask == 0, "V1", "a receive with tag %#x gets message %d of %d, tag %#x", tag, m.Seq, m.Src, m.Tag)
		before = m.Seq
		if c.out == nil {
			c.out = map[*Message]struct{}{}
		}
		c.out[m] = struct{}{}
	}
	if c.matches++; !invariant.Due(q.Len(), c.matches) {
		return
	}
	for u := range q.All() {
		if u == m {
			invariant.Broken("V3", "message %d of %d has a receive and waits for another", m.Seq, m.Src)
		}
		if u.Seq < before && (u.Tag^tag)&mask == 0 {
			invariant.Broken("V1", "a receive with tag %#x does not get the oldest message that it matches, %d of %d", tag, u.Seq, u.Src)
		}
	}
}

func (c *queueCheck) drop(m *Message) {
	delete(c.out, m)
	if m.Rndv {
		c.use(m, -1)
	}
}

// request counts a request that is kept.
func (c *queueCheck) request(m *Message) { c.use(m, 1) }

func (c *queueCheck) use(m *Message, more int) {
	key := requestName{m.Src, m.Name}
	u := c.names[key]
	if u.n += more; u.n == 0 {
		delete(c.names, key)
		return
	}
	u.twice = u.twice || u.n > 1
	if c.names == nil {
		c.names = map[requestName]nameUse{}
	}
	c.names[key] = u
}

// Out gives the messages that Match has taken out and nobody has dropped.
func (q *Queue) Out() iter.Seq[*Message] { return maps.Keys(q.inv.out) }

// Check checks the whole queue: order of arrival, bytes, requests by source and name.
func (q *Queue) Check() {
	last, bytes := uint64(0), uint64(0)
	requests := map[*Message]bool{}
	for h, m := range q.arrived.All() {
		invariant.Check(!m.free(), "pool", "the unexpected messages have one that is free")
		invariant.Check(m.Seq > last, "V1", "message %d of %d is behind a later one", m.Seq, m.Src)
		last = m.Seq
		if m.Rndv {
			invariant.Check(m.handle == h, "list", "request %d of %d is under another handle", m.Seq, m.Src)
			requests[m] = true
		}
		bytes += m.Cost()
	}
	for m := range q.inv.out {
		invariant.Check(!m.free(), "pool", "a message that somebody holds is free")
		bytes += m.Cost()
	}
	invariant.Check(bytes == uint64(q.bytes), "credit", "%d bytes of unexpected messages are counted, there are %d", q.bytes, bytes)
	last = 0
	for _, m := range q.requeued {
		invariant.Check(!m.free() && m.Rndv && m.handle == 0, "list", "what was requeued is no request")
		invariant.Check(m.Seq > last, "V1", "request %d of %d is behind a later one", m.Seq, m.Src)
		last = m.Seq
		requests[m] = true
	}
	for i, s := range q.sources {
		if s != nil {
			q.checkSource(i, s, requests)
		}
	}
	invariant.Check(len(requests) == 0, "list", "%d requests are in the queue and not with their sources", len(requests))
}

// checkSource checks the requests of rank i, and takes them out of those that are in the queue.
func (q *Queue) checkSource(i int, s *source, requests map[*Message]bool) {
	n := 0
	for m := s.newest; m != nil; m = m.next {
		invariant.Check(requests[m] && int(m.Src) == i, "list", "rank %d has a request that is not in the queue: tag %#x, %d bytes", i, m.Tag, m.Len)
		invariant.Check(s.named == nil || s.named[m.Name] == m || q.inv.names[requestName{m.Src, m.Name}].twice, "list",
			"rank %d has a request that is not found by its name: tag %#x", i, m.Tag)
		delete(requests, m)
		n++
	}
	invariant.Check(len(s.named) <= n, "list", "rank %d has %d requests, %d are found by name", i, n, len(s.named))
}
