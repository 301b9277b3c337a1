//go:build invariants

package loop

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/invariant/invarianttest"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/wire"
)

// TestCheckPacket: a host that writes to what it was lent is found when the packet's place is used
// again.
func TestCheckPacket(t *testing.T) {
	q := newPacketQueue(1)
	h := wire.Header{Op: wire.OpSend, Length: 4}
	require.True(t, q.put(&h, []byte("abcd"), nil))
	p, _ := q.peek()
	lent := p.buf
	q.take()
	require.True(t, q.put(&h, []byte("abcd"), nil))
	q.take()
	lent[2] = 0
	invarianttest.Violates(t, "poison", func() { q.put(&h, nil, nil) })
}
