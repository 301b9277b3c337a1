//go:build invariants

package mux

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/transport"
)

// taker is a path that takes every FIN.
type taker struct{ transport.Transport }

func (taker) SendFin(int, uint32) error { return nil }

// TestCheckOwner: a second goroutine posts while the owner polls.
func TestCheckOwner(t *testing.T) {
	tr := &Transport{paths: []transport.Transport{taker{}}}
	defer tr.enter("Poll")()
	said := make(chan any)
	go func() {
		defer func() { said <- recover() }()
		_ = tr.SendFin(0, 1)
	}()
	require.ErrorContains(t, (<-said).(error), "is in transport/mux: Poll")
	require.NotPanics(t, func() { _ = tr.SendFin(0, 1) }, "as a Sink may do")
}
