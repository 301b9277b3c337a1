package soak

import (
	"fmt"
	"math/rand/v2"

	"github.com/tagmatch/tagmatch/bench/internal/benchkit"
	"github.com/tagmatch/tagmatch/p2p"
)

// subs is how many tags an exchange has.
const subs = 4

// message is what one rank sends to another in an exchange.
type message struct {
	src, dst int
	seq      int // among those of src to dst
	sub      p2p.Tag
	size     int
	key      int // of its contents
}

// plan is all that one rank sends to another in an exchange.
func (x *exchange) plan(src, dst int) []message {
	key := x.round.seed ^ uint64(x.number)<<56 ^ uint64(src)<<28 ^ uint64(dst)
	rng := rand.New(rand.NewPCG(key, 1))
	list := make([]message, rng.IntN(x.round.Count+1))
	for i := range list {
		list[i] = message{src: src, dst: dst, seq: i, sub: p2p.Tag(rng.IntN(subs)), size: x.round.size(rng), key: rng.Int()}
	}
	return list
}

// size is that of some message: most are short.
func (o *Options) size(rng *rand.Rand) int {
	most := o.Size
	switch n := rng.IntN(64); {
	case n < 32:
		most = 64
	case n < 48:
		most = 4 << 10
	case n < 60:
		most = 64 << 10
	}
	return rng.IntN(min(most, o.Size) + 1)
}

// contents fills buf with what m consists of.
func (m *message) contents(buf []byte) []byte {
	benchkit.Fill(buf[:m.size], m.key)
	return buf[:m.size]
}

// compare requires that got, which is as long as m, is m.
func (m *message) compare(got, scratch []byte) error {
	if err := benchkit.Damage(got, m.contents(scratch)); err != nil {
		return fmt.Errorf("message %d of rank %d, of %d bytes, %w", m.seq, m.src, len(got), err)
	}
	return nil
}

// cursors are the messages that are still to come, by source: those that match the same receives
// come in the order of sending.
type cursors struct {
	x     *exchange
	bySub bool // receives name the tag; else any of the exchange's tags matches
	left  [][]message
}

func (x *exchange) expected(bySub bool) *cursors {
	c := &cursors{x: x, bySub: bySub}
	for src := range x.w.Size() {
		var list []message
		if src != x.w.Rank() {
			list = x.plan(src, x.w.Rank())
		}
		c.left = append(c.left, list)
	}
	return c
}

// count is how many are to come, with this tag or with any.
func (c *cursors) count(sub p2p.Tag) (n int) {
	for _, list := range c.left {
		for i := range list {
			if !c.bySub || list[i].sub == sub {
				n++
			}
		}
	}
	return n
}

// take is the message that st and buf must be.
func (c *cursors) take(st p2p.Status, buf []byte) error {
	if st.Source < 0 || st.Source >= len(c.left) {
		return fmt.Errorf("a message of rank %d, which there is not", st.Source)
	}
	list, sub := c.left[st.Source], st.Tag-c.x.tag(0)
	i := 0
	for c.bySub && i < len(list) && list[i].sub != sub {
		i++
	}
	if i == len(list) {
		return fmt.Errorf("a message of %d bytes with tag %#x from rank %d, which has sent no more", st.Len, st.Tag, st.Source)
	}
	m := list[i]
	c.left[st.Source] = append(list[:i:i], list[i+1:]...)
	return c.x.check(&m, st, buf)
}

// check requires that st and buf are m.
func (x *exchange) check(m *message, st p2p.Status, buf []byte) error {
	if st.Source != m.src || st.Tag != x.tag(m.sub) || st.Len != int64(m.size) {
		return fmt.Errorf("%d bytes with tag %#x from rank %d, want message %d of rank %d: %d bytes with tag %#x",
			st.Len, st.Tag, st.Source, m.seq, m.src, m.size, x.tag(m.sub))
	}
	x.round.count(m.size)
	return m.compare(buf[:m.size], x.scratch)
}
