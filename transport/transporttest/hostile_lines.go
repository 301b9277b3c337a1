package transporttest

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/transport"
	"github.com/tagmatch/tagmatch/transport/internal/format"
)

// testHostileLine: the line of an impostor ends in the midst of the handshake, or it tells more
// than a device keeps. The victim loses it, once, and talks to the others.
func testHostileLine(t *testing.T, h Harness, opts Options) {
	for name, a := range map[string]struct {
		do     func(p *impostor)
		accuse bool // it breaks the protocol; else its process ends
	}{
		"ends before HELLO":     {do: func(p *impostor) { p.meet() }},
		"ends behind HELLO":     {do: func(p *impostor) { p.meet(); p.tell(p.hello) }},
		"ends behind READY":     {do: func(p *impostor) { p.meet(); p.tell(p.hello); p.tell(p.ready()) }},
		"ends when connected":   {do: func(p *impostor) { p.connect() }},
		"17 messages":           {do: func(p *impostor) { p.meet(); p.tell(p.hello); p.flood() }, accuse: true},
		"17 messages, unasked":  {do: (*impostor).flood, accuse: true},
		"17 messages, then END": {do: func(p *impostor) { p.flood(); p.tell(&format.End{Reason: "so there"}) }, accuse: true},
	} {
		t.Run(name, func(t *testing.T) {
			c, victim, other, p := infiltrate(t, h, opts)
			p.introduce()
			a.do(p)
			if !a.accuse {
				p.close()
				c.closeDevice(1)
			}
			c.until("the loss", func() bool {
				if a.accuse {
					p.poll() // its device may still have to send what it was told
				}
				return len(victim.of("lost")) > 0
			})
			c.requireLost(victim, 1)
			require.Equal(t, a.accuse, errors.Is(victim.of("lost")[0].Err, transport.ErrProtocol), "%v", victim.of("lost")[0].Err)
			requireGone(t, victim, 1)
			c.ping(victim, other)
			c.ping(victim, victim)
			c.steps(600)
			require.Len(t, victim.of("lost"), 1)
			if a.accuse {
				p.close()
			}
		})
	}
}

// testHostileHello: an impostor's HELLO names queue pairs or memory that it does not have. The
// victim finds that when it posts there, loses the impostor, and talks to the others.
func testHostileHello(t *testing.T, h Harness, opts Options) {
	for name, lie := range map[string]func(p *impostor, h *format.Hello){
		"no pairs": func(_ *impostor, h *format.Hello) {
			for i := range h.Pairs {
				h.Pairs[i].Num = 1<<24 - 1 - uint32(i)
			}
		},
		"one pair that is none": func(_ *impostor, h *format.Hello) { h.Pairs[len(h.Pairs)-1].Num = 0 },
		"no credit cell":        func(_ *impostor, h *format.Hello) { h.CellAddr, h.CellRKey = 4096, 1 },
		"a cell without end":    func(_ *impostor, h *format.Hello) { h.CellAddr = 1<<64 - 4 },
	} {
		t.Run(name, func(t *testing.T) {
			c, victim, other, p := infiltrate(t, h, opts)
			p.introduce()
			p.connectAs(func(h *format.Hello) { lie(p, h) })
			p.until("the loss", func() bool { return len(victim.of("lost")) > 0 })
			c.requireLost(victim, 1)
			requireGone(t, victim, 1)
			require.Empty(t, other.Events)
			c.ping(victim, other)
			c.ping(victim, victim)
			p.close()
		})
	}
}

// flood tells as many messages as no device keeps, and one that is a HELLO behind another.
func (p *impostor) flood() {
	p.t.Helper()
	msg := (&format.Hello{Rank: p.rank, Number: 99, MTU: 5, Pairs: make([]format.Pair, 1)}).Encode()
	for range 17 {
		p.tellBytes(msg)
	}
	p.poll()
}
