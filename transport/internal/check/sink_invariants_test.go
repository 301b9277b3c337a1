//go:build invariants

package check

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/invariant"
	"github.com/tagmatch/tagmatch/internal/invariant/invarianttest"
	"github.com/tagmatch/tagmatch/transport"
)

// keeper is a Sink that retains the slices it is lent.
type keeper struct {
	kept     [][]byte
	header   *transport.RndvHdr
	greeting []byte // what it answers
}

func (k *keeper) keep(b []byte) { k.kept = append(k.kept, b) }

func (k *keeper) Eager(_ int, _ uint32, _ uint64, payload []byte) { k.keep(payload) }
func (k *keeper) Ctrl(_ int, msg []byte)                          { k.keep(msg) }
func (k *keeper) Incomplete(_ uint64, h *transport.RndvHdr)       { k.Rndv(0, h) }
func (k *keeper) Rndv(_ int, h *transport.RndvHdr) {
	k.header = h
	k.keep(h.Extra)
}
func (k *keeper) Greeting(int) []byte { return k.greeting }
func (k *keeper) Connected(_ int, greeting []byte) error {
	k.keep(greeting)
	return nil
}
func (k *keeper) Fin(int, uint32)                     {}
func (k *keeper) ReadDone(uint64, error)              {}
func (k *keeper) PeerLost(int, error)                 {}
func (k *keeper) Matched(uint64, int, uint32, uint64) {}
func (k *keeper) Delivered(uint64, uint64, error)     {}
func (k *keeper) Deleted(uint64, bool)                {}

// TestCheckLent: a lent slice that a Sink retains is overwritten.
func TestCheckLent(t *testing.T) {
	k := &keeper{}
	_, c := New(k, nil, 1)
	defer c.Polls()()
	c.Greeting(0)
	require.NoError(t, c.Connected(0, []byte("greeting")))
	c.Eager(0, 1, 2, []byte("eager"))
	c.Ctrl(0, []byte("ctrl"))
	c.Rndv(0, &transport.RndvHdr{Tag: 3, Extra: []byte("extra")})
	require.Len(t, k.kept, 4)
	for _, b := range k.kept {
		require.NotEmpty(t, b)
		require.NotPanics(t, func() { invariant.RequirePoison(b, "it") })
	}
	require.EqualValues(t, poisonWord, k.header.Tag)
}

// TestCheckSink: illegal calls of the Sink are detected.
func TestCheckSink(t *testing.T) {
	for name, v := range map[string]struct {
		rule string
		do   func(c *Sink)
	}{
		"a rank that is none":     {"sink", func(c *Sink) { c.Fin(2, 0) }},
		"greeted twice":           {"once", func(c *Sink) { c.Greeting(1) }},
		"greeted when lost":       {"once", func(c *Sink) { c.PeerLost(0, nil); c.Greeting(0) }},
		"a message of a stranger": {"connect", func(c *Sink) { c.Fin(0, 0) }},
		"connected, a stranger":   {"connect", func(c *Sink) { _ = c.Connected(0, nil) }},
		"a greeting too long": {"connect", func(c *Sink) {
			c.sink.(*keeper).greeting = make([]byte, transport.MaxGreeting+1)
			c.Greeting(0)
		}},
		"connected twice":           {"once", func(c *Sink) { _ = c.Connected(1, nil); _ = c.Connected(1, nil) }},
		"a message of a lost rank":  {"sink", func(c *Sink) { c.PeerLost(1, nil); c.Ctrl(1, nil) }},
		"a loss twice":              {"once", func(c *Sink) { c.PeerLost(1, nil); c.PeerLost(1, nil) }},
		"a loss before its reads":   {"sink", func(c *Sink) { c.Reads(1, 7); c.PeerLost(1, nil) }},
		"a loss before its receive": {"sink", func(c *Sink) { c.Adds(7); c.Matched(7, 1, 0, 0); c.PeerLost(1, nil) }},
		"a read twice":              {"once", func(c *Sink) { c.Reads(1, 7); c.ReadDone(7, nil); c.ReadDone(7, nil) }},
		"a read's slot twice":       {"once", func(c *Sink) { c.Reads(1, 7); c.ReadEnds(1, 7); c.ReadEnds(1, 7) }},
		"a read before another":     {"sink", func(c *Sink) { c.Reads(1, 7); c.Reads(1, 8); c.ReadEnds(1, 8) }},
		"outside Poll":              {"sink", func(c *Sink) { c.polling.Store(false); c.Fin(1, 0) }},
		"after Close":               {"sink", func(c *Sink) { c.Closes(); c.Fin(1, 0) }},
		"Poll in a Sink":            {"owner", func(c *Sink) { c.Polls() }},
		"credit taken back":         {"credit", func(c *Sink) { c.Grants(1, 9); c.Grants(1, 9); c.Grants(1, 8) }},
		"matched twice":             {"V3", func(c *Sink) { c.Adds(7); c.Matched(7, 1, 0, 0); c.Matched(7, 1, 0, 0) }},
		"matched after ForceDel":    {"V3", func(c *Sink) { c.Adds(7); c.ForcedDels(7); c.Matched(7, 1, 0, 0) }},
		"delivered unmatched":       {"V12", func(c *Sink) { c.Adds(7); c.Delivered(7, 0, nil) }},
		"delivered twice": {"V12", func(c *Sink) {
			c.Adds(7)
			c.Matched(7, 1, 0, 0)
			c.Delivered(7, 0, nil)
			c.Incomplete(7, &transport.RndvHdr{})
		}},
		"deleted when matched":    {"V12", func(c *Sink) { c.Adds(7); c.Deletes(7); c.Matched(7, 1, 0, 0); c.Deleted(7, true) }},
		"deleted twice":           {"once", func(c *Sink) { c.Adds(7); c.Deletes(7); c.Deleted(7, false); c.Deleted(7, false) }},
		"ForceDel when matched":   {"V12", func(c *Sink) { c.Adds(7); c.Matched(7, 1, 0, 0); c.ForcedDels(7) }},
		"added twice":             {"once", func(c *Sink) { c.Adds(7); c.Adds(7) }},
		"handled more than given": {"V8", func(c *Sink) { c.Eager(1, 0, 0, nil); c.Handled(0); c.Handled(1); c.Handled(2) }},
	} {
		t.Run(name, func(t *testing.T) {
			_, c := New(&keeper{}, nil, 2)
			c.Polls()
			c.Greeting(1)
			invarianttest.Violates(t, v.rule, func() { v.do(c) })
		})
	}
}
