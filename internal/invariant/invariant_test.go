package invariant

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCheck(t *testing.T) {
	require.NotPanics(t, func() { Check(true, "V1", "fine") })
	require.PanicsWithError(t, "invariant V1: 2 is not 3", func() { Check(false, "V1", "%d is not %d", 2, 3) })
}

func TestPoison(t *testing.T) {
	b := []byte{1, 2, 3}
	Poison(b)
	require.Equal(t, []byte{PoisonByte, PoisonByte, PoisonByte}, b)
}

func here() Stack { return Here() }

func TestStack(t *testing.T) {
	if !Enabled {
		require.Empty(t, here().String()+here().Caller())
		return
	}
	require.Contains(t, here().String(), "invariant.TestStack\n")
	require.NotContains(t, here().String(), "invariant.here\n")
	require.Regexp(t, `^invariant_test.go:\d+ invariant.TestStack$`, here().Caller())
}

// elsewhere runs f on another goroutine and returns what it panicked with.
func elsewhere(f func()) (v any) {
	done := make(chan any)
	go func() {
		defer func() { done <- recover() }()
		f()
	}()
	return <-done
}

func TestMutex(t *testing.T) {
	var m Mutex
	m.Lock()
	m.AssertHeld("x")
	require.False(t, m.TryLock())
	if Enabled {
		require.Panics(t, m.Lock)
		require.ErrorContains(t, elsewhere(func() { m.AssertHeld("the list") }).(error), "uses the list without the lock")
		require.ErrorContains(t, elsewhere(m.Unlock).(error), "without the lock")
	}
	m.Unlock()
	require.True(t, m.TryLock())
	m.Unlock()
	if Enabled {
		require.Panics(t, func() { m.AssertHeld("x") })
	}
}

func TestGuard(t *testing.T) {
	var g Guard
	g.Enter("poll")
	g.Enter("post")
	if Enabled {
		require.ErrorContains(t, elsewhere(func() { g.Enter("poll") }).(error), "is in post")
	}
	g.Leave()
	g.Leave()
	require.Nil(t, elsewhere(func() { g.Enter("poll") }))
}

func TestPoisonStart(t *testing.T) {
	b := make([]byte, 2*poisonMost)
	PoisonStart(b)
	require.Zero(t, b[poisonMost])
	if !Enabled {
		require.Zero(t, b[0])
		return
	}
	require.NotPanics(t, func() { RequirePoison(b, "a buffer") })
	b[poisonMost-1] = 1
	require.PanicsWithError(t, "invariant poison: byte 4095 of a buffer was written to after its life: 0x1", func() { RequirePoison(b, "a buffer") })
}

func TestExclusive(t *testing.T) {
	var e Exclusive
	e.Enter("poll")
	require.PanicsWithError(t, "invariant owner: post while poll is under way", func() { e.Enter("post") })
	e.Leave()
	require.NotPanics(t, func() { e.Enter("post") })
}

// deep calls f at a different place of the stack for each depth.
func deep(depth int, f func()) byte {
	var frame [1 << 10]byte
	if depth == 0 {
		f()
	} else {
		frame[depth] = deep(depth-1, f)
	}
	return frame[depth]
}

// No goroutine is taken for the owner by mistake, although stacks move and are reused.
func TestMutexOwnerAnywhere(t *testing.T) {
	var m Mutex
	m.Lock()
	for depth := range 100 {
		deep(depth, func() { m.AssertHeld("x") })
		if Enabled {
			require.Error(t, elsewhere(func() { deep(depth, func() { m.AssertHeld("x") }) }).(error))
		}
	}
	m.Unlock()
	if Enabled {
		require.Panics(t, func() { m.AssertHeld("x") })
	}
}
