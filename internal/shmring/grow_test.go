package shmring

import (
	"encoding/binary"
	"errors"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

// touched is how many lines of a ring are not zero up to the last of them.
func touched(mem []byte) int {
	n := len(mem) - dataPart
	for n > 0 && mem[dataPart+n-1] == 0 {
		n--
	}
	return (n + LineBytes - 1) / LineBytes
}

// takeOne takes the next packet and returns its payload.
func takeOne(t *testing.T, c *Consumer) []byte {
	var pkt Packet
	ok, err := c.Peek(&pkt)
	require.NoError(t, err)
	require.True(t, ok)
	c.Advance()
	return pkt.Payload
}

// TestStaysSmall: however many packets pass, a ring that never has much in it uses its first lines
// alone. One that is full, or gets a long packet, uses all.
func TestStaysSmall(t *testing.T) {
	const ringBytes = 8 * firstBytes
	payload := make([]byte, MaxPayload(ringBytes))
	for i := range payload {
		payload[i] = 0xff
	}
	p, c, mem := newPair(t, ringBytes)
	p.allocate = func() error { t.Fatal("there was room"); return nil }
	for range 10_000 {
		for range 3 {
			require.True(t, p.Push(1, 2, nil, nil, payload[:1000]))
		}
		for range 3 {
			takeOne(t, c)
			c.Release()
		}
	}
	require.LessOrEqual(t, touched(mem), firstBytes/LineBytes)

	grown := 0
	p.allocate = func() error { grown++; return nil }
	n := 0
	for p.Push(1, 2, nil, nil, payload[:1000]) {
		n++
	}
	require.Equal(t, 1, grown)
	require.Greater(t, n*1000, ringBytes/2)
	require.Greater(t, touched(mem), ringBytes/LineBytes/2)
	for range n {
		require.Len(t, takeOne(t, c), 1000)
		c.Release()
	}

	p, c, _ = newPair(t, ringBytes)
	p.allocate = func() error { grown++; return nil }
	require.True(t, p.Push(1, 2, nil, nil, payload[:8]))
	require.True(t, p.Push(1, 2, nil, nil, payload))
	require.Equal(t, 2, grown)
	require.Len(t, takeOne(t, c), 8)
	require.Equal(t, payload, takeOne(t, c))
}

// TestGrowthWithoutMemory: a ring that cannot have more memory goes on with what it has. A packet
// that does not fit into that is refused for good reason, and taken once there is memory.
func TestGrowthWithoutMemory(t *testing.T) {
	const ringBytes = 8 * firstBytes
	p, c, mem := newPair(t, ringBytes)
	none := errors.New("no memory")
	tries := 0
	p.allocate = func() error { tries++; return none }
	payload := make([]byte, MaxPayload(ringBytes))
	n := 0
	for p.Push(1, 2, nil, nil, payload[:100]) {
		n++
	}
	require.NoError(t, p.Err(), "the reader makes room")
	for range 100 {
		require.False(t, p.Push(1, 2, nil, nil, payload[:100]))
		require.False(t, p.HasRoom(100))
	}
	require.Equal(t, 1, tries)
	require.EqualValues(t, 1, p.ctl.want)
	for range n {
		takeOne(t, c)
	}
	require.True(t, c.Release())
	require.True(t, p.Push(1, 2, nil, nil, payload[:100]))
	require.False(t, p.Push(1, 2, nil, nil, payload))
	require.ErrorIs(t, p.Err(), none)
	require.Equal(t, 2, tries)
	require.LessOrEqual(t, touched(mem), firstBytes/LineBytes)
	for range 2 * n { // around twice, and full again
		takeOne(t, c)
		c.Release()
		require.True(t, p.Push(1, 2, nil, nil, payload[:100]))
	}
	more := 1
	for p.Push(1, 2, nil, nil, payload[:100]) {
		more++
	}
	require.Equal(t, 3, tries)

	p.allocate = nil
	require.True(t, p.Push(1, 2, nil, nil, payload))
	require.NoError(t, p.Err())
	for range more {
		require.Len(t, takeOne(t, c), 100)
	}
	require.Len(t, takeOne(t, c), len(payload))
}

// TestGrowthKeepsLent: payloads that were lent when the ring grew stay until they are released.
func TestGrowthKeepsLent(t *testing.T) {
	const ringBytes = 2 * firstBytes
	p, c, _ := newPair(t, ringBytes)
	fill := func(b byte) []byte {
		s := make([]byte, 1000)
		for i := range s {
			s[i] = b
		}
		return s
	}
	var lent [][]byte
	pushed := 0
	for p.Push(1, 2, nil, nil, fill(byte(pushed)|0x80)) {
		pushed++
		lent = append(lent, takeOne(t, c))
	}
	require.Greater(t, pushed*1000, firstBytes)
	require.Less(t, pushed*1000, ringBytes)
	for i, b := range lent {
		require.Equal(t, fill(byte(i)|0x80), b)
	}
	c.Release()
	require.True(t, p.Push(1, 2, nil, nil, fill(1)), "released")
	require.Equal(t, fill(1), takeOne(t, c))
}

// TestGrowthRace: packets of all lengths arrive whole and in order while rings grow beside their
// reader.
func TestGrowthRace(t *testing.T) {
	const ringBytes, packets = 4 * firstBytes, 400
	for round := range 100 {
		p, c, _ := newPair(t, ringBytes)
		size := func(i int) int {
			if i == packets/4+2*round {
				return firstBytes / 2 // it grows here at the latest
			}
			return 8 + (i*7919+round*31)%((1+i%4)*600)
		}
		done := make(chan error, 1)
		go func() {
			var pkt Packet
			for i := 0; i < packets; {
				ok, err := c.Peek(&pkt)
				if err != nil {
					done <- err
					return
				}
				if !ok {
					runtime.Gosched()
					continue
				}
				if len(pkt.Payload) != size(i) || binary.NativeEndian.Uint64(pkt.Payload) != uint64(i) || pkt.ID != uint64(i) {
					done <- errors.New("a packet is not the next, or not whole")
					return
				}
				if i++; i%(1+round%9) == 0 {
					delay(uint64(i * round))
				}
				c.Advance()
				c.Release()
			}
			done <- nil
		}()
		payload := make([]byte, firstBytes/2)
		for i := range packets {
			binary.NativeEndian.PutUint64(payload, uint64(i))
			for !p.Push(1, uint64(i), nil, nil, payload[:size(i)]) {
				runtime.Gosched()
				if len(done) > 0 {
					break
				}
			}
		}
		require.NoError(t, <-done, "round %d", round)
	}
}
