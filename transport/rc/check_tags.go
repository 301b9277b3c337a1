package rc

import (
	"github.com/tagmatch/tagmatch/internal/invariant"
	"github.com/tagmatch/tagmatch/transport"
)

// The part of Checks for transports with a TagList.

// Told checks a reported count: it never exceeds the number of messages that the Sink got (V8).
func (c *Checks) Told(handled uint32) {
	invariant.Check(int32(c.unexpected-handled) >= 0, "V8", "%d unexpected messages are reported as handled, the sink was given %d",
		handled, c.unexpected)
}

// Added records a receive that was added to the list.
func (c *Checks) Added(id uint64) {
	invariant.Check(c.tags[id] == nil, "once", "receive %d is in the list twice", id)
	c.tags[id] = &tagCheck{}
}

// Deletes records a Del.
func (c *Checks) Deletes(id uint64) { c.dels[id]++ }

// Drops records a Drop; asked means that a Del of the receive is pending, whose place it takes.
func (c *Checks) Drops(id uint64, asked bool) {
	r := c.tags[id]
	invariant.Check(r != nil && !r.matched, "V12", "receive %d is dropped, which is not in the list or matched", id)
	delete(c.tags, id)
	if asked {
		c.answered(id)
	}
}

func (c *Checks) answered(id uint64) {
	invariant.Check(c.dels[id] > 0, "once", "the outcome of a Del of receive %d is told once too often", id)
	if c.dels[id]--; c.dels[id] == 0 {
		delete(c.dels, id)
	}
}

// Matched implements transport.TagSink.
func (c *Checks) Matched(id uint64, src int, appCtx uint32, tag uint64) {
	defer c.sinkCall("Matched", src)()
	r := c.tags[id]
	invariant.Check(r != nil && !r.matched, "V3", "receive %d is matched, which is not in the list or matched before", id)
	r.matched, r.src = true, src
	if src >= 0 {
		c.active[src]++
	}
	c.sink.Matched(id, src, appCtx, tag)
}

// ends records the end of a matched receive (V12).
func (c *Checks) ends(id uint64) {
	r := c.tags[id]
	invariant.Check(r != nil && r.matched, "V12", "receive %d ends, which is not in the list or not matched", id)
	if r.src >= 0 {
		c.active[r.src]--
	}
	delete(c.tags, id)
}

// Delivered implements transport.TagSink.
func (c *Checks) Delivered(id uint64, n uint64, err error) {
	defer c.sinkCall("Delivered", -1)()
	c.ends(id)
	c.sink.Delivered(id, n, err)
}

// Incomplete implements transport.TagSink.
func (c *Checks) Incomplete(id uint64, h *transport.RndvHdr) {
	defer c.sinkCall("Incomplete", -1)()
	c.ends(id)
	c.header(h, func(h *transport.RndvHdr) { c.sink.Incomplete(id, h) })
}

// Deleted implements transport.TagSink.
func (c *Checks) Deleted(id uint64, ok bool) {
	defer c.sinkCall("Deleted", -1)()
	c.answered(id)
	if r := c.tags[id]; ok {
		invariant.Check(r != nil && !r.matched, "V12", "receive %d is deleted, which is not in the list or matched", id)
		delete(c.tags, id)
	}
	c.sink.Deleted(id, ok)
}

var _ transport.Sink = (*Checks)(nil)
