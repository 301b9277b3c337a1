//go:build invariants

package check

import (
	"github.com/tagmatch/tagmatch/internal/invariant"
	"github.com/tagmatch/tagmatch/transport"
)

// The part of Sink for transports with a TagList.

// Handled checks a count that the engine reports: no more messages were handled than the Sink was
// given (V8).
func (c *Sink) Handled(handled uint32) {
	invariant.Check(int32(c.unexpected-handled) >= 0, "V8", "%d unexpected messages are reported as handled, the sink was given %d",
		handled, c.unexpected)
}

// Adds records that a receive was added to the list.
func (c *Sink) Adds(id uint64) {
	invariant.Check(c.tags[id] == nil, "once", "receive %d is in the list twice", id)
	c.tags[id] = &receive{}
}

// Deletes records a Del: Deleted follows.
func (c *Sink) Deletes(id uint64) { c.dels[id]++ }

// ForcedDels records a ForceDel.
func (c *Sink) ForcedDels(id uint64) {
	r := c.tags[id]
	invariant.Check(r != nil && !r.matched, "V12", "a forced DEL of receive %d, which is not in the list or matched", id)
	delete(c.tags, id)
}

// Matched implements transport.TagSink.
func (c *Sink) Matched(id uint64, src int, appCtx uint32, tag uint64) {
	c.call("Matched", src)
	r := c.tags[id]
	invariant.Check(r != nil && !r.matched, "V3", "receive %d is matched, which is not in the list or matched before", id)
	r.matched, r.src = true, src
	if src >= 0 {
		c.active[src]++
	}
	c.sink.Matched(id, src, appCtx, tag)
}

// ends records the end of a matched receive (V12).
func (c *Sink) ends(id uint64) {
	r := c.tags[id]
	invariant.Check(r != nil && r.matched, "V12", "receive %d ends, which is not in the list or not matched", id)
	if r.src >= 0 {
		c.active[r.src]--
	}
	delete(c.tags, id)
}

// Delivered implements transport.TagSink.
func (c *Sink) Delivered(id uint64, n uint64, err error) {
	c.call("Delivered", -1)
	c.ends(id)
	c.sink.Delivered(id, n, err)
}

// Incomplete implements transport.TagSink.
func (c *Sink) Incomplete(id uint64, h *transport.RndvHdr) {
	c.call("Incomplete", -1)
	c.ends(id)
	c.header(h, func(h *transport.RndvHdr) { c.sink.Incomplete(id, h) })
}

// Deleted implements transport.TagSink.
func (c *Sink) Deleted(id uint64, ok bool) {
	c.call("Deleted", -1)
	invariant.Check(c.dels[id] > 0, "once", "the outcome of a Del of receive %d is told once too often", id)
	if c.dels[id]--; c.dels[id] == 0 {
		delete(c.dels, id)
	}
	if r := c.tags[id]; ok {
		invariant.Check(r != nil && !r.matched, "V12", "receive %d is deleted, which is not in the list or matched", id)
		delete(c.tags, id)
	}
	c.sink.Deleted(id, ok)
}

var _ transport.Sink = (*Sink)(nil)
