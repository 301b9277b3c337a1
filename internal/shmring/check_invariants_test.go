//go:build invariants

package shmring

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/invariant"
	"github.com/tagmatch/tagmatch/internal/invariant/invarianttest"
)

func init() { ownReaders = true }

// TestCheckAdvance: a packet is taken once.
func TestCheckAdvance(t *testing.T) {
	p, c, _ := newPair(t, MinBytes)
	require.True(t, p.Push(1, 2, nil, nil, []byte("packet")))
	var pkt Packet
	invarianttest.Violates(t, "ring", c.Advance)
	ok, err := c.Peek(&pkt)
	require.True(t, ok && err == nil)
	c.Advance()
	invarianttest.Violates(t, "ring", c.Advance)
}

// TestCheckRelease: released lines are overwritten.
func TestCheckRelease(t *testing.T) {
	p, c, _ := newPair(t, MinBytes)
	var pkt Packet
	var payloads [][]byte
	for !c.Owed() {
		require.True(t, p.Push(1, 2, nil, nil, []byte("packet")))
		ok, err := c.Peek(&pkt)
		require.True(t, ok && err == nil)
		payloads = append(payloads, pkt.Payload)
		c.Advance()
	}
	require.Equal(t, "packet", string(payloads[0]))
	c.Release()
	for _, b := range payloads {
		require.NotPanics(t, func() { invariant.RequirePoison(b, "it") })
	}
}

// TestCheckPublish: a writer with wrong cursors, or that stores a word where the reader may be
// reading, is detected.
func TestCheckPublish(t *testing.T) {
	for _, spoil := range []func(p *Producer){
		func(p *Producer) { p.limit = p.tail },
		func(p *Producer) { p.cleared = p.tail },
		func(p *Producer) { p.limit += p.mask },
		// In order, but the next line is not free.
		func(p *Producer) { p.cleared, p.limit = p.tail+1, p.tail+1 },
		func(p *Producer) { *p.data.word(p.tail & p.mask) = 5 },
		func(p *Producer) { *p.data.word((p.tail + 1) & p.mask) = 5 },
	} {
		p, _, _ := newPair(t, MinBytes)
		require.True(t, p.Push(1, 2, nil, nil, []byte("packet")))
		require.NotPanics(t, p.checkCursors)
		spoil(p)
		invarianttest.Violates(t, "ring", func() { p.publish(p.tail&p.mask, 1, 1) })
	}
}

// TestCheckHeld: a packet that is pushed behind others that are held is detected.
func TestCheckHeld(t *testing.T) {
	p, _, _ := newPair(t, MinBytes)
	require.True(t, p.Hold(1, 2, nil, []byte("packet")))
	invarianttest.Violates(t, "ring", func() { p.Push(1, 2, nil, nil, []byte("packet")) })
	p.Publish()
	require.True(t, p.Push(1, 2, nil, nil, []byte("packet")))
}

// TestCheckHostileReader: a reader in another process cannot make the writer panic.
func TestCheckHostileReader(t *testing.T) {
	ownReaders = false
	defer func() { ownReaders = true }()
	p, _, mem := newPair(t, MinBytes)
	for i := range mem {
		mem[i] = 0xa5
	}
	require.NotPanics(t, func() {
		for range 10 * MinBytes / LineBytes {
			p.Push(1, 2, nil, nil, []byte("packet"))
			p.Push(1, 2, nil, nil, make([]byte, 5*LineBytes))
		}
	})
}

// TestCheckGrown: the lines at which a ring goes on were never used.
func TestCheckGrown(t *testing.T) {
	p, _, _ := newPair(t, 8*firstBytes)
	at := grown(p.tail, p.mask+1, p.all)
	*p.data.word(at & (p.all - 1)) = 5
	invarianttest.Violates(t, "ring", func() { _ = p.grow() })
}
