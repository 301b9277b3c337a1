package coll

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"strings"

	"github.com/tagmatch/tagmatch/p2p"
)

// textBytes is the length of a text that all members compare; longer ones are cut.
const textBytes = 120

// description is the call as its members compare it.
func (c *call) description() string {
	var b strings.Builder
	b.WriteString(c.kind.String())
	if c.typ != nil {
		fmt.Fprintf(&b, " of %v", c.typ)
	}
	if c.op.combine != nil {
		fmt.Fprintf(&b, " by %s", c.op.name)
		if !c.op.commutative {
			b.WriteString(" in order")
		}
	}
	if c.rooted() {
		fmt.Fprintf(&b, ", root %d", c.root)
	}
	if c.kind < gatherV && c.element > 0 { // the lengths of the V calls are each member's own
		fmt.Fprintf(&b, ", %d elements", c.bytes()/c.element)
	}
	return b.String()
}

func (c *call) rooted() bool {
	switch c.kind {
	case bcast, reduce, gather, scatter, gatherV, scatterV:
		return true
	}
	return false
}

// compare fails on all members where their calls differ: each gets all descriptions, and names the
// first that differs from member 0's.
func (c *call) compare() error {
	if c.size() == 1 {
		return nil
	}
	texts := &call{asked: asked{g: c.g, ctx: c.ctx, kind: allGather, tag: c.tag, team: c.team, element: 1}}
	texts.in = encode(c.description())
	texts.out = make([]byte, len(texts.in)*c.size())
	if err := allGatherBruck(texts); err != nil {
		return err
	}
	first := texts.out[:len(texts.in)]
	for rank := 1; rank < c.size(); rank++ {
		if other := texts.out[rank*len(first):][:len(first)]; string(other) != string(first) {
			return &differError{fmt.Sprintf("the members make different calls: rank 0 %q, rank %d %q", decode(first), rank, decode(other))}
		}
	}
	return nil
}

// encode is a text in a fixed length, with a hash of what is cut.
func encode(text string) []byte {
	h := fnv.New64a()
	_, _ = h.Write([]byte(text))
	b := make([]byte, 8+textBytes)
	binary.LittleEndian.PutUint64(b, h.Sum64())
	copy(b[8:], text)
	return b
}

func decode(b []byte) string { return strings.TrimRight(string(b[8:]), "\x00") }

// differError is what all members find where their calls differ.
type differError struct{ text string }

func (e *differError) Error() string { return fmt.Sprintf("%v: %s", p2p.ErrInvalid, e.text) }
func (e *differError) Unwrap() error { return p2p.ErrInvalid }
