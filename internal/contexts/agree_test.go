package contexts

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Of Comms that agree at the same time one is offered the free contexts until it has taken one: the
// one with the lowest context, so that all ranks lend to the same.
func TestOfferIsLentToOne(t *testing.T) {
	r := newContextsModel(t, 1, 3).ranks[0]
	low, high := &Comm{Context: 1, Group: order{0, 1}}, &Comm{Context: 2, Group: order{0, 1, 2}}
	doneHigh, doneLow := r.cs.Ask(high), r.cs.Ask(low)
	offered := func(c *Comm) bool {
		_, _, ok := r.cs.Offer(c, nil)
		return ok
	}
	require.False(t, offered(high))
	require.True(t, offered(low))
	require.False(t, offered(low), "it has them already")
	_, ok := r.cs.Take(Set{})
	require.False(t, ok, "other ranks had none in common")
	require.False(t, offered(high))
	require.True(t, offered(low))
	_, ok = r.cs.Take(r.cs.Free())
	require.True(t, ok)
	doneLow()
	require.True(t, offered(high))
	doneHigh()
}
