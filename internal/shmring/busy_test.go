package shmring

import (
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestBusy has a writer that copies to the reader's memory while it is granted, and a reader that
// revokes that again and again: after that, and with the writer not busy, nothing may change there.
func TestBusy(t *testing.T) {
	p, c, _ := newPair(t, MinBytes)
	rounds := parkRounds() / 10
	var asked atomic.Uint32
	var stop atomic.Bool
	var memory, copies atomic.Uint64
	done := make(chan struct{})
	go func() {
		defer close(done)
		for n := uint64(1); !stop.Load(); n++ {
			grant := asked.Load()
			p.SetBusy(true)
			if p.Granted(grant) {
				delay(n)
				memory.Store(n)
				copies.Add(1)
			}
			p.SetBusy(false)
		}
	}()
	defer func() {
		stop.Store(true)
		<-done
	}()
	for i := range rounds {
		grant, _ := c.Grant()
		asked.Store(grant)
		if i == 0 { // on one processor the writer comes seldom by itself
			spinUntil(func() bool { return copies.Load() > 0 })
		}
		delay(uint64(i) * 7)
		if i%2 == 0 {
			c.Revoke(grant)
		} else {
			c.RevokeAll()
		}
		busy := c.Busy()
		spinUntil(func() bool { return c.Busy() != busy || busy == 0 })
		before := memory.Load()
		delay(uint64(i))
		if after := memory.Load(); after != before {
			t.Fatalf("round %d: the writer copied to memory that was taken back", i)
		}
		asked.Store(0)
		spinUntil(func() bool { return c.Busy() == 0 })
		c.Return(grant)
	}
}

// TestGrants: a grant is valid from Grant to Revoke, and is not given again before Return.
func TestGrants(t *testing.T) {
	p, c, _ := newPair(t, MinBytes)
	require.False(t, p.Granted(0))
	var all []uint32
	for range Grants {
		g, ok := c.Grant()
		require.True(t, ok)
		require.NotContains(t, all, g)
		require.True(t, p.Granted(g))
		all = append(all, g)
	}
	_, ok := c.Grant()
	require.False(t, ok)
	for i, g := range all {
		c.Revoke(g)
		for k, o := range all {
			require.Equal(t, k > i, p.Granted(o))
		}
		_, ok := c.Grant()
		require.False(t, ok, "the writer has not answered")
	}
	for _, g := range all {
		c.Return(g)
		again, ok := c.Grant()
		require.True(t, ok)
		require.Equal(t, g, again)
		require.True(t, p.Granted(g))
	}
	c.RevokeAll()
	g, ok := c.Grant()
	require.True(t, ok)
	require.NotContains(t, all, g)
	for _, old := range all {
		c.Revoke(old) // of no effect, as is Return
		c.Return(old)
		require.False(t, p.Granted(old))
	}
	require.True(t, p.Granted(g))
	next, ok := c.Grant()
	require.True(t, ok)
	require.NotEqual(t, g, next)

	c.grants.epoch = epochMask
	c.RevokeAll()
	require.EqualValues(t, 1, c.grants.epoch)
}
