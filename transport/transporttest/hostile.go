package transporttest

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/transport"
	"github.com/tagmatch/tagmatch/transport/internal/format"
	"github.com/tagmatch/tagmatch/verbs"
)

// attack opens three ranks of which rank 1 is an impostor, lets it act, and returns when the
// victim, rank 0, has lost it or, with Harness.Unheard, has a device that has refused what it asks.
func attack(t *testing.T, h Harness, opts Options, name string, do func(p *impostor, victim *rank)) *rank {
	t.Helper()
	c, victim, other, p := infiltrate(t, h, opts)
	p.introduce()
	p.connect()
	do(p, victim)
	step := func() {
		p.poll()
		c.step()
	}
	lost := func() bool { return len(victim.of("lost")) > 0 }
	untilWith(t, name+": the loss of the impostor", func() bool { return lost() || h.Unheard && p.refused }, step)
	if c.steps(200); lost() || !h.Unheard {
		c.requireLost(victim, 1)
		require.ErrorIs(t, victim.of("lost")[0].Err, transport.ErrProtocol, name)
		require.Contains(t, victim.of("lost")[0].Err.Error(), "broke the protocol", name)
		requireGone(t, victim, 1)
	}
	require.Empty(t, other.Events)
	c.ping(victim, other)
	c.ping(victim, victim)
	c.stillMatches(victim)
	p.close()
	for _, r := range c.ranks {
		c.close(r)
	}
	c.closeDevices()
	return victim
}

// stillMatches checks that an attack did not put a device's counters out of phase for good (TMO
// 5.1): then no new entry would ever be live.
func (c *cluster) stillMatches(r *rank) {
	c.t.Helper()
	l := r.TagList()
	if l == nil {
		return
	}
	tag := packed(r.n, 99)
	require.NoError(c.t, l.Add(1, tag, exact, make([]byte, 8), uint32(len(r.of("eager"))+len(r.of("rndv")))))
	require.NoError(c.t, r.SendEager(r.n, 0, tag, []byte("match")))
	c.until("a match", func() bool { return len(r.of("delivered")) == 1 })
}

// header returns the start of a message.
func header(op verbs.TMHOpcode, size int) []byte {
	b := make([]byte, size)
	b[0] = byte(op)
	return b
}

func rndv(short uint32, long uint64, size int) []byte {
	b := header(verbs.TMHRndv, 100)
	verbs.RVH{VA: 1, RKey: 2, Len: short}.Put(b[verbs.TMHSize:])
	binary.BigEndian.PutUint64(b[verbs.TMHSize+verbs.RVHSize:], long)
	return b[:size]
}

func testHostile(t *testing.T, h Harness, opts Options) {
	opts.MaxEager = 1000
	opts.SRQDepth = 1 // a leaked receive buffer shows at once
	for name, msg := range map[string][]byte{
		"nothing":                  {},
		"unknown opcode":           header(9, 16),
		"opcode 255":               header(255, 64),
		"an opcode alone":          header(verbs.TMHEager, 1),
		"a short eager header":     header(verbs.TMHEager, 15),
		"eager above the limit":    header(verbs.TMHEager, 16+1001),
		"a short fin":              header(verbs.TMHFin, 15),
		"a long fin":               header(verbs.TMHFin, 65),
		"a short request":          rndv(0, 0, 39),
		"a request without RVH":    rndv(0, 0, 16),
		"a long request":           rndv(0, 0, 65),
		"lengths that contradict":  rndv(5, 6, 40),
		"lengths that contradict2": rndv(1<<32-1, 5, 40),
		"lengths that contradict3": rndv(5, 1<<32|5, 64),
		"untagged without a kind":  header(verbs.TMHNoTag, 1),
		"untagged of unknown kind": {0, 200, 1, 2},
		"control above the limit":  append([]byte{0, 1}, make([]byte, 500)...),
	} {
		attackBy(t, h, opts, name, msg)
	}
	for name, wr := range map[string]verbs.SendWR{
		"a write to nowhere":  {Opcode: verbs.WRRDMAWrite, RemoteAddr: 4096, RKey: 1},
		"a read from nowhere": {Opcode: verbs.WRRDMARead, RemoteAddr: 4096, RKey: 1},
	} {
		attack(t, h, opts, name, func(p *impostor, _ *rank) { p.post(wr, make([]byte, 8)) })
	}
	testHostileImmediate(t, h, opts)
	attack(t, h, opts, "a write behind its credit cell", func(p *impostor, _ *rank) {
		p.post(verbs.SendWR{Opcode: verbs.WRRDMAWrite, RemoteAddr: p.theirs.CellAddr + 4, RKey: p.theirs.CellRKey}, make([]byte, 8))
	})
	// Messages before the bad one are delivered, those after it are not.
	victim := attack(t, h, opts, "good, bad, good", func(p *impostor, _ *rank) {
		p.say(header(verbs.TMHEager, 16))
		p.say(header(77, 16))
		p.say(header(verbs.TMHEager, 16))
	})
	require.Len(t, victim.messages(1), 1)
}

// testHostileImmediate sends immediate data where no transport does. A write with it takes a
// receive, and leaves in its buffer an older message, which is not to be delivered again.
func testHostileImmediate(t *testing.T, h Harness, opts Options) {
	old := []byte{byte(verbs.TMHNoTag), format.CtrlKind, 'm', 'e', 's', 's', 'a', 'g'}
	const write = "a write with immediate data"
	for name, c := range map[string]struct {
		send func(p *impostor)
		says string
	}{
		"a write of nothing": {func(p *impostor) { p.post(verbs.SendWR{Opcode: verbs.WRRDMAWriteWithImm}, nil) }, write},
		"a write": {func(p *impostor) {
			p.post(verbs.SendWR{Opcode: verbs.WRRDMAWriteWithImm, RemoteAddr: p.theirs.CellAddr, RKey: p.theirs.CellRKey}, make([]byte, len(old)))
		}, write},
		"a message": {func(p *impostor) {
			p.post(verbs.SendWR{Opcode: verbs.WRSendWithImm, Imm: 0xabc}, header(verbs.TMHEager, 20))
		}, "with immediate data 0xabc"},
	} {
		victim := attack(t, h, opts, name, func(p *impostor, victim *rank) {
			p.say(old)
			p.until("the old message", func() bool { return len(victim.of("ctrl")) == 1 })
			c.send(p)
		})
		require.Len(t, victim.messages(1), 1, name)
		require.ErrorContains(t, victim.of("lost")[0].Err, c.says, name)
	}
}

// attackBy is an attack by one message.
func attackBy(t *testing.T, h Harness, opts Options, name string, msg []byte) {
	t.Helper()
	victim := attack(t, h, opts, name, func(p *impostor, _ *rank) { p.say(msg) })
	require.Len(t, victim.messages(1), 0, "%s: nothing is delivered", name)
}

// testHostileLength sends more than any receive takes.
func testHostileLength(t *testing.T, h Harness, opts Options) {
	attackBy(t, h, opts, "larger than any buffer", header(verbs.TMHEager, 100_000))
}

// testHostileNoise sends random bytes behind a valid opcode.
func testHostileNoise(t *testing.T, h Harness, opts Options) {
	rng := newRNG(opts.Seed)
	rounds := 5
	if h.Long {
		rounds = 50
	}
	for range rounds {
		attack(t, h, opts, "noise", func(p *impostor, _ *rank) {
			for range 30 {
				b := make([]byte, rng.IntN(100))
				for i := range b {
					b[i] = byte(rng.Uint32())
				}
				if len(b) > 0 {
					b[0] = byte(rng.IntN(5))
				}
				p.say(b)
			}
			p.say([]byte{99})
		})
	}
}
