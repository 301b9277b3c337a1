package transporttest

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/transport"
	"github.com/tagmatch/tagmatch/transport/internal/format"
)

// testRefused connects to addresses that do not fit: the error names the rank and the difference,
// and other connections are unaffected.
func testRefused(t *testing.T, h Harness, opts Options) {
	c := h.open(t, 2, opts)
	a, b := c.ranks[0], c.ranks[1]
	good := b.Address()
	refuse := func(addr []byte, words ...string) {
		t.Helper()
		err := a.Connect(1, addr)
		require.Error(t, err)
		require.ErrorContains(t, err, "rank 1")
		for _, w := range words {
			require.ErrorContains(t, err, w)
		}
	}
	for n := range good {
		refuse(good[:n])
	}
	refuse(append(good[:len(good):len(good)], 0))
	for _, v := range []byte{0, 1, 255} {
		addr := append([]byte(nil), good...)
		addr[3] = v
		refuse(addr, "version")
	}
	with := func(change func(a *format.Address)) []byte {
		x, err := format.DecodeAddress(good)
		require.NoError(t, err)
		change(&x)
		return x.Encode()
	}
	refuse(with(func(a *format.Address) { a.MaxEager = 77 }), "eager limit", "77")
	refuse(with(func(a *format.Address) { a.Mode = "other" }), "other", a.Caps().Name)
	refuse(with(func(a *format.Address) { a.Job = "elsewhere" }), "elsewhere")
	refuse(with(func(a *format.Address) { a.Rank = 0 }), "rank 0")
	refuse(with(func(a *format.Address) { a.Size, a.Rank = 1, 0 }), "2")
	refuse(with(func(a *format.Address) { a.Device = []byte("nonsense") }))
	require.Error(t, a.Connect(2, good))
	require.Error(t, a.Connect(-1, good))
	requireGone(t, a, 1) // not connected is not ErrAgain

	c.connect(c.ranks)
	refuse(good, "already")
	c.ping(a, b)
}

// testRefusedHello: whatever an impostor tells that is wrong, the victim loses it, tells it why,
// and talks to the others.
func testRefusedHello(t *testing.T, h Harness, opts Options) {
	hello := func(change func(h *format.Hello)) func(p *impostor) {
		return func(p *impostor) {
			p.meet()
			change(p.hello)
			p.tell(p.hello)
		}
	}
	connected := func(then func(p *impostor)) func(p *impostor) {
		return func(p *impostor) {
			p.connect()
			then(p)
		}
	}
	for name, r := range map[string]struct {
		do      func(p *impostor)
		reason  string // of the victim's error, and of what it tells
		accuses bool
	}{
		"out of range":      {hello(func(h *format.Hello) { h.Rank = 7 }), "it says that it is rank 7", true},
		"another rank":      {hello(func(h *format.Hello) { h.Rank = 2 }), "it says that it is rank 2", true},
		"the victim":        {hello(func(h *format.Hello) { h.Rank = 0 }), "it says that it is rank 0", true},
		"more queue pairs":  {hello(func(h *format.Hello) { h.Pairs = make([]format.Pair, 3-len(h.Pairs)) }), "it makes", true},
		"a bad MTU":         {hello(func(h *format.Hello) { h.MTU = 9 }), "MTU", true},
		"a long greeting":   {hello(func(h *format.Hello) { h.Greeting = make([]byte, transport.MaxGreeting+1) }), "greeting", true},
		"HELLO twice":       {connected(func(p *impostor) { p.tell(p.hello) }), "HELLO twice", true},
		"a later transport": {connected(func(p *impostor) { p.hello.Number++; p.tell(p.hello) }), "begun anew", false},
		"READY first":       {func(p *impostor) { p.meet(); p.tell(p.ready()) }, "READY out of turn", true},
		"READY unasked":     {func(p *impostor) { p.tell(&format.Ready{}) }, "READY out of turn", true},
		"READY twice":       {connected(func(p *impostor) { p.tell(p.ready()) }), "READY out of turn", true},
		"another READY": {func(p *impostor) {
			p.meet()
			p.tell(p.hello)
			p.tell(&format.Ready{Number: p.theirs.Number + 1})
		}, "READY out of turn", true},
		"another version": {func(p *impostor) {
			p.meet()
			b := p.hello.Encode()
			b[0] = 77
			p.tellBytes(b)
		}, "version 77", false},
		"a malformed END":   {func(p *impostor) { p.tellBytes([]byte{1, 3, 2, 0}) }, "END of 4 bytes", true},
		"a long END":        {func(p *impostor) { p.tellBytes(append([]byte{1, 3}, make([]byte, 203)...)) }, "END of 205 bytes", true},
		"a malformed READY": {func(p *impostor) { p.tellBytes(append([]byte{1, 2, 1}, make([]byte, 13)...)) }, "READY that is none", true},
		"noise":             {func(p *impostor) { p.tellBytes([]byte{1, 99, 0, 0}) }, "unknown kind", true},
		"short":             {func(p *impostor) { p.tellBytes([]byte{1}) }, "1 bytes", true},
	} {
		t.Run(name, func(t *testing.T) {
			c, victim, other, p := infiltrate(t, h, opts)
			p.introduce()
			r.do(p)
			end := hear[*format.End](p)
			p.until("the loss", func() bool { return len(victim.of("lost")) > 0 })
			c.requireLost(victim, 1)
			require.Contains(t, victim.of("lost")[0].Err.Error(), r.reason)
			require.Equal(t, r.accuses, errors.Is(victim.of("lost")[0].Err, transport.ErrProtocol))
			require.Contains(t, end.Reason, r.reason)
			require.Equal(t, r.accuses, end.Accuses)
			requireGone(t, victim, 1)
			c.ping(victim, other)
			c.ping(victim, victim)

			p.tell(&format.Hello{Rank: 1, Number: 100, MTU: 5, Pairs: make([]format.Pair, 1)}) // once more
			again := hear[*format.End](p)
			require.Contains(t, again.Reason, "has given it up")
			require.Len(t, victim.of("lost"), 1)
			p.close()
		})
	}
}

// testStranger: a device that is no rank's is told so, and nobody is lost. What it tells of the end
// of anything is nothing to anybody.
func testStranger(t *testing.T, h Harness, opts Options) {
	c, victim, other, p := infiltrate(t, h, opts)
	p.tell(&format.End{Reason: "so there"})
	p.tell(&format.Hello{Rank: 1, Number: 100, MTU: 5, Pairs: make([]format.Pair, 1)})
	require.Contains(t, hear[*format.End](p).Reason, "knows no rank")
	require.Empty(t, victim.Events)
	c.ping(victim, other)
	p.close()
}
