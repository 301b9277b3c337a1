package shmring

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/tagmatch/tagmatch/internal/invariant"
)

// alignedBytes returns heap memory that starts at a cache line, as mapped memory does. The race
// detector covers heap memory only.
func alignedBytes(n int) []byte {
	b := make([]byte, n+LineBytes)
	for !aligned(b) {
		b = b[1:]
	}
	return b[:n:n]
}

func newPair(t testing.TB, ringBytes int) (*Producer, *Consumer, []byte) {
	mem := alignedBytes(Size(ringBytes))
	p, err := NewProducer(mem, nil)
	require.NoError(t, err)
	c, err := NewConsumer(mem)
	require.NoError(t, err)
	return p, c, mem
}

type sent struct {
	meta    uint32
	id      uint64
	ext     *Ext
	payload []byte
}

// TestAgainstQueue compares a small ring with a slice queue, with random packets.
func TestAgainstQueue(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		ringBytes := MinBytes << rapid.IntRange(0, 4).Draw(rt, "ring") // the larger ones grow
		p, c, _ := newPair(t, ringBytes)
		var queue, taken []sent
		var lent [][]byte
		seq := byte(0)
		rt.Repeat(map[string]func(*rapid.T){
			"push": func(rt *rapid.T) {
				// Many 0xff bytes and small sizes: old payload must never look like a word.
				n := rapid.OneOf(rapid.IntRange(0, 64), rapid.IntRange(0, MaxPayload(ringBytes))).Draw(rt, "size")
				seq++
				s := sent{meta: uint32(rapid.IntRange(0, metaMask).Draw(rt, "meta")), id: rand.Uint64(),
					payload: bytes.Repeat([]byte{seq | 0x80}, n)}
				if rapid.Bool().Draw(rt, "ext") {
					s.ext = &Ext{rand.Uint64(), 0, rand.Uint64()}
				}
				cut := rapid.IntRange(0, n).Draw(rt, "cut")
				if p.Push(s.meta, s.id, s.ext, s.payload[:cut], s.payload[cut:]) {
					queue = append(queue, s)
				} else if len(queue) == 0 && !c.Owed() && len(lent) == 0 {
					rt.Fatalf("no room in an empty ring")
				}
			},
			"hold": func(rt *rapid.T) {
				held := 0
				for range rapid.IntRange(1, 40).Draw(rt, "packets") {
					n := rapid.IntRange(0, shortRoom+1).Draw(rt, "size")
					seq++
					s := sent{meta: uint32(rapid.IntRange(0, metaMask).Draw(rt, "meta")), id: rand.Uint64(),
						payload: bytes.Repeat([]byte{seq | 0x80}, n)}
					cut := rapid.IntRange(0, n).Draw(rt, "cut")
					if !p.Hold(s.meta, s.id, s.payload[:cut], s.payload[cut:]) {
						break
					}
					if c.Empty() != (len(queue) == held) {
						rt.Fatalf("%d packets are held and %d queued: empty %v", held+1, len(queue), c.Empty())
					}
					held++
					queue = append(queue, s)
				}
				if held > 0 {
					p.Publish()
				}
			},
			"take": func(rt *rapid.T) {
				var got Packet
				ok, err := c.Peek(&got)
				if err != nil || ok != (len(queue) > 0) {
					rt.Fatalf("peek: %v %v with %d queued", ok, err, len(queue))
				}
				if !ok {
					return
				}
				s := queue[0]
				if got.Meta != s.meta || got.ID != s.id || !bytes.Equal(got.Payload, s.payload) || got.HasExt != (s.ext != nil) ||
					got.HasExt && got.Ext != *s.ext {
					rt.Fatalf("got %+v, want %+v", got, s)
				}
				meta, id, payload, short := c.PeekShort()
				if short != (s.ext == nil) || short && (meta != s.meta || id != s.id || !bytes.Equal(payload, s.payload)) {
					rt.Fatalf("short: %v %d %d %x, want %+v", short, meta, id, payload, s)
				}
				c.Advance()
				queue = queue[1:]
				taken, lent = append(taken, s), append(lent, got.Payload)
			},
			"release": func(rt *rapid.T) {
				for i, b := range lent {
					if !bytes.Equal(b, taken[i].payload) {
						rt.Fatalf("lent payload %d changed", i)
					}
				}
				c.Release()
				lent, taken = nil, nil
			},
			"prepare": func(*rapid.T) { p.Prepare() },
		})
	})
}

// TestPrepare: the words of another packet as long as the last long one are cleared, of lines that
// are free only.
func TestPrepare(t *testing.T) {
	const ringBytes = 8 * MinBytes
	p, c, _ := newPair(t, ringBytes)
	full := bytes.Repeat([]byte{0xff}, MaxPayload(ringBytes))
	half := full[:len(full)/2]
	var pkt Packet
	take := func() {
		ok, err := c.Peek(&pkt)
		require.NoError(t, err)
		require.True(t, ok)
		c.Advance()
		c.Release()
	}
	for range 8 { // laps: nothing is 0 by chance
		require.True(t, p.Push(1, 0, nil, nil, full))
		take()
	}
	require.True(t, p.Push(1, 0, nil, nil, half))
	require.True(t, p.Long())
	take()
	long := p.last
	require.True(t, p.Push(1, 0, nil, nil, full[:8]))
	require.Equal(t, long, p.last, "a short packet is no long one")
	require.False(t, p.Long())
	p.Prepare()
	require.Equal(t, p.tail+long+1, p.cleared)
	for i := p.tail; i < p.cleared; i++ {
		require.Zero(t, *p.data.word(i & p.mask))
	}
	require.NotZero(t, *p.data.word(p.cleared & p.mask))

	take()
	for p.Push(1, 0, nil, nil, half) {
	}
	p.Prepare()
	require.LessOrEqual(t, p.cleared, p.limit)
	for range 2 {
		take()
	}
	require.Equal(t, len(half), len(pkt.Payload))
	require.Equal(t, half, pkt.Payload)
}

// TestClearAhead: lines are cleared behind packets of up to shortLines lines, and of no longer one.
func TestClearAhead(t *testing.T) {
	p, c, _ := newPair(t, MinBytes)
	push := func(lines int) uint64 {
		require.True(t, p.Push(1, 0, nil, nil, make([]byte, lines*LineBytes-shortHeader)))
		var pkt Packet
		_, err := c.Peek(&pkt)
		require.NoError(t, err)
		c.Advance()
		c.Release()
		return p.cleared - p.tail
	}
	for p.tail < 2*MinBytes/LineBytes {
		push(8) // without a skip
	}
	for range 3 {
		require.EqualValues(t, 1, push(shortLines+1), "the line behind alone")
		require.True(t, p.Long())
	}
	require.EqualValues(t, 1+clearBatch, push(shortLines))
	require.False(t, p.Long())
}

// TestFullRingAlwaysMoves: an emptied ring has room for any packet.
func TestFullRingAlwaysMoves(t *testing.T) {
	p, c, _ := newPair(t, MinBytes)
	var pkt Packet
	buf := make([]byte, MaxPayload(MinBytes))
	for i := range 20000 {
		n := rand.IntN(len(buf) + 1)
		for !p.Push(1, uint64(i), &Ext{}, nil, buf[:n]) {
			ok, err := c.Peek(&pkt)
			require.NoError(t, err)
			require.True(t, ok, "full, yet nothing to read")
			c.Advance()
			c.Release()
		}
	}
}

// TestWanted: a writer that found the ring full is signalled when there is room.
func TestWanted(t *testing.T) {
	p, c, _ := newPair(t, MinBytes)
	for p.Push(1, 0, nil, nil, nil) {
	}
	var pkt Packet
	wanted := 0
	for {
		ok, err := c.Peek(&pkt)
		require.NoError(t, err)
		if !ok {
			break
		}
		c.Advance()
		if c.Release() {
			wanted++
			require.True(t, p.Push(2, 0, nil, nil, nil))
		}
		if wanted == 3 {
			break
		}
		if wanted > 0 {
			for p.Push(2, 0, nil, nil, nil) {
			}
		}
	}
	require.Equal(t, 3, wanted)
}

func TestPushDoesNotAllocate(t *testing.T) {
	p, c, _ := newPair(t, MinBytes)
	buf := make([]byte, 500)
	ext := &Ext{1}
	var pkt Packet
	n := testing.AllocsPerRun(1000, func() {
		p.Push(1, 2, nil, buf[:8], buf[:8])
		p.Push(1, 2, ext, buf[:8], buf)
		for range 2 {
			if ok, _ := c.Peek(&pkt); ok {
				c.Advance()
			}
			c.Release()
		}
	})
	if !invariant.Enabled {
		require.Zero(t, n)
	}
}

func TestBadMemory(t *testing.T) {
	for _, n := range []int{0, 100, controlBytes + 1000, Size(MinBytes) - 1, Size(3 * MinBytes)} {
		_, err := NewProducer(alignedBytes(n), nil)
		require.Error(t, err, n)
	}
	_, err := NewConsumer(alignedBytes(Size(MinBytes) + 8)[8:])
	require.ErrorContains(t, err, "multiple of 64")
	_, err = NewInbox(make([]byte, 10))
	require.Error(t, err)
}

// FuzzHostileWriter gives the reader arbitrary ring memory: it may return errors, but must not
// panic, read outside the memory, or loop.
func FuzzHostileWriter(f *testing.F) {
	word := func(m, meta, form, n uint64) []byte {
		return binary.NativeEndian.AppendUint64(nil, m<<markShift|meta<<metaShift|form<<formShift|n)
	}
	f.Add(word(0x80, 1, formShort, 8))
	f.Add(word(0x80, 1, formShort, 0xffffff))
	f.Add(word(0x80, 1, formExt, 48))
	f.Add(word(0x80, 1, formSkip, 0))
	f.Add(word(0x80, 0, formGrow, 0))
	f.Add(word(0x80, 1, 77, 0))
	f.Add(append(word(0x80, 1, formShort, 40), bytes.Repeat(append(word(0x80, 0, formSkip, 0), make([]byte, 56)...), 60)...))
	f.Fuzz(func(t *testing.T, data []byte) {
		_, c, mem := newPair(t, 2*firstBytes)
		for i := controlBytes; i < len(mem) && len(data) > 0; i += len(data) {
			copy(mem[i:], data) // repeated, so that short inputs reach every line
		}
		var pkt Packet
		for range 1000 {
			ok, err := c.Peek(&pkt)
			if err != nil || !ok {
				return
			}
			for _, b := range pkt.Payload {
				_ = b
			}
			c.Advance()
			c.Release()
		}
	})
}

// TestHostileReader: whatever a reader writes into the control block, the writer stays within its
// ring.
func TestHostileReader(t *testing.T) {
	p, _, _ := newPair(t, MinBytes)
	for i := range 10000 {
		if i%7 == 0 {
			p.ctl.head = rand.Uint64() >> rand.IntN(64)
		}
		p.Push(1, 2, nil, nil, make([]byte, rand.IntN(MaxPayload(MinBytes))))
	}
}

func TestProtocolErrors(t *testing.T) {
	for what, word := range map[string]uint64{
		"wrong lap mark": 0x81<<markShift | 5,
		"unknown form":   0x80<<markShift | 9<<formShift,
		"longer than":    0x80<<markShift | 5000,
		"skip":           0x80<<markShift | formSkip<<formShift,
		"growth":         0x80<<markShift | formGrow<<formShift, // of a ring that has no more lines
	} {
		_, c, _ := newPair(t, MinBytes)
		*c.data.word(0) = word
		_, err := c.Peek(&Packet{})
		var perr *ProtocolError
		require.ErrorAs(t, err, &perr)
		require.ErrorContains(t, err, what)
		_, _, _, ok := c.PeekShort()
		require.False(t, ok)
	}
}
