package progress

import (
	"bytes"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// cutUp is parts of so many bytes in all, in memory between guards that no message may change.
// Some are empty, and some so long that they are read by themselves.
func cutUp(rng *rand.Rand, size int) (mem []byte, parts [][]byte) {
	const guard = 3
	for size > 0 || rng.IntN(3) == 0 {
		n := 0
		switch rng.IntN(8) {
		case 0:
		case 1, 2, 3:
			n = 8
		case 4, 5:
			n = rng.IntN(100)
		case 6:
			n = rng.IntN(5000)
		case 7:
			n = rng.IntN(2 * longPart)
		}
		n = min(n, size)
		size -= n
		mem = append(mem, bytes.Repeat([]byte{0xee}, guard)...)
		at := len(mem)
		mem = append(mem, make([]byte, n)...)
		parts = append(parts, mem[at:at+n:at+n])
	}
	// The memory has moved as it grew.
	all, at := append(mem, 0xee), 0
	for i := range parts {
		at += guard
		parts[i] = all[at : at+len(parts[i]) : at+len(parts[i])]
		at += len(parts[i])
	}
	return all, parts
}

// write fills parts with b, as far as it fits, one byte at a time.
func write(parts [][]byte, b []byte) {
	for _, part := range parts {
		for i := range part {
			if len(b) == 0 {
				return
			}
			part[i], b = b[0], b[1:]
		}
	}
}

// vecExchange is a send and a receive, of one buffer or several, and what must come of them.
type vecExchange struct {
	send, recv Request
	mem, want  []byte // of the receive
	size, room int
	to         int // by rank 0
}

// vecOptions are transports with and without room, and such that cut what is read.
var vecOptions = []fakeOpts{{}, {room: 1}, {room: 3, maxRead: 1000}, {maxRead: 40_000, tags: 2}}

// TestVectorsModel: messages of parts arrive as those of one buffer, whatever waits for what.
func TestVectorsModel(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	for i := range rounds(100) {
		cfg := Config{Manual: true}
		if i%3 == 0 {
			cfg.UnexpectedLimit = tightLimit(3)
		}
		c := newCluster(t, 3, cfg, vecOptions[i%len(vecOptions)])
		var all []*vecExchange
		for tag := range uint64(12) {
			x := &vecExchange{size: vecSize(rng), to: 1 + rng.IntN(2)}
			x.room = max(x.size+rng.IntN(3)*(rng.IntN(100)-50), 0)
			post := []func(){func() { x.postRecv(rng, c.e[x.to], tag) }, func() { x.postSend(rng, c.e[0], tag) }}
			first := rng.IntN(2)
			post[first]()
			if rng.IntN(2) == 0 {
				c.step()
			}
			post[1-first]()
			all = append(all, x)
		}
		c.step()
		for _, x := range all {
			x.check(t)
		}
		c.quiet()
		for _, e := range c.e {
			requireVectorsFree(t, e)
		}
	}
}

func vecSize(rng *rand.Rand) int {
	return []int{rng.IntN(4), rng.IntN(300), rng.IntN(2000), rng.IntN(3 * longPart), rng.IntN(3 * stageSize)}[rng.IntN(5)]
}

func (x *vecExchange) postSend(rng *rand.Rand, e *Engine, tag uint64) {
	_, parts := cutUp(rng, x.size)
	msg := fill(x.size, byte(tag))
	write(parts, msg)
	switch rng.IntN(4) {
	case 0:
		x.send = e.Isend(x.to, tag, msg)
	case 1:
		x.send = e.IssendVec(x.to, tag, parts)
	default:
		x.send = e.IsendVec(x.to, tag, parts)
	}
}

func (x *vecExchange) postRecv(rng *rand.Rand, e *Engine, tag uint64) {
	mem, parts := cutUp(rng, x.room)
	write(parts, fill(x.size, byte(tag)))
	x.mem, x.want = mem, bytes.Clone(mem)
	write(parts, make([]byte, x.room))
	if rng.IntN(4) == 0 {
		x.mem = make([]byte, x.room)
		x.want = fill(x.size, byte(tag))[:min(x.size, x.room)]
		x.want = append(x.want, make([]byte, x.room-len(x.want))...)
		x.recv = e.Irecv(0, tag, exact, x.mem)
		return
	}
	x.recv = e.IrecvVec(0, tag, exact, parts)
}

func (x *vecExchange) check(t *testing.T) {
	t.Helper()
	st, err := ended(t, x.recv)
	require.EqualValues(t, x.size, st.Len)
	if x.size > x.room {
		require.ErrorIs(t, err, ErrTruncated)
	} else {
		require.NoError(t, err)
	}
	require.True(t, bytes.Equal(x.want, x.mem), "a message of %d bytes into %d is not what was sent, or is beside the parts", x.size, x.room)
	require.EqualValues(t, x.size, statusOf(t, x.send).Len)
}

// requireVectorsFree requires that an engine without operations uses no memory of vectors.
func requireVectorsFree(t *testing.T, e *Engine) {
	t.Helper()
	require.LessOrEqual(t, len(e.stages.free), keptStages)
	require.LessOrEqual(t, len(e.vectors.free), keptVectors)
	for _, v := range e.vectors.free {
		require.Equal(t, vector{}, *v)
	}
}

// TestVectorsEnd: sends and receives of parts that are cancelled, or that a loss or the close ends,
// end as others do, and leave nothing.
func TestVectorsEnd(t *testing.T) {
	few, many := [][]byte{make([]byte, 8), make([]byte, 100)}, [][]byte{make([]byte, 3000), make([]byte, 2000)}
	c := newCluster(t, 3, Config{Manual: true, UnexpectedLimit: tightLimit(3)}, fakeOpts{maxRead: 1000})
	e := c.e[0]
	waits := e.IrecvVec(1, 1, exact, many)
	require.Equal(t, 1, e.Uses(many[1]))
	waits.Cancel()
	canceled(t, waits)
	held := c.holdUp(0, 1)
	first, second := e.IsendVec(1, 2, few), e.IsendVec(1, 3, few)
	require.Zero(t, e.Uses(few[1]), "what waits was gathered")
	first.Cancel()
	canceled(t, first)
	open(t, second)

	reading, behind := c.e[2].IrecvVec(0, 5, exact, many), c.e[2].IrecvVec(0, 6, exact, many)
	sends := []Request{e.IsendVec(2, 5, many), e.IsendVec(2, 6, many), e.IssendVec(2, 7, few)}
	c.net.nodes[2].holdRds = true
	c.step()
	open(t, reading, behind)
	open(t, sends...)
	c.net.nodes[2].failRds, c.net.nodes[2].holdRds = true, false
	c.step()
	for _, r := range []Request{reading, behind} {
		_, err := ended(t, r)
		require.ErrorIs(t, err, ErrPeerLost)
	}
	c.net.kill(1)
	c.step()
	for _, r := range []Request{held, second} {
		_, err := ended(t, r)
		require.ErrorIs(t, err, ErrPeerLost)
	}
	require.NoError(t, e.Close(nil))
	for _, r := range sends {
		_, err := ended(t, r)
		require.ErrorIs(t, err, ErrClosed)
	}
	for _, e := range c.e {
		requireVectorsFree(t, e)
	}
}

// TestVectorsTooLong: parts of more bytes than there is memory are an error of the request.
func TestVectorsTooLong(t *testing.T) {
	if uint64(^uint(0)) < 1<<63 {
		t.Skip("takes 64 bits")
	}
	e := manual(t, 1, fakeOpts{}).e[0]
	many := make([][]byte, 1<<20)
	part := make([]byte, 1<<27) // nobody touches it
	for i := range many {
		many[i] = part
	}
	for _, r := range []Request{e.IsendVec(0, 1, many), e.IssendVec(0, 1, many)} {
		_, err := ended(t, r)
		require.ErrorIs(t, err, ErrInvalid)
	}
}

// TestVectorsWaitForRoom: parts that wait for room in the transport go as they are, whatever was
// gathered meanwhile.
func TestVectorsWaitForRoom(t *testing.T) {
	c := manual(t, 3, fakeOpts{room: 1})
	var reqs []Request
	send := func(to int, tag uint64) {
		msg := fill(50, byte(10*tag))
		reqs = append(reqs, c.e[0].IsendVec(to, tag, [][]byte{msg[:8], msg[8:20], msg[20:]}))
	}
	send(1, 0)
	send(1, 1) // waits
	send(2, 2)
	send(2, 3) // waits
	c.e[2].Poll()
	send(1, 4)
	c.step()
	send(1, 5)
	send(1, 6) // waits
	send(2, 7)
	c.step()
	succeeded(t, reqs...)
	for tag, to := range []int{1, 1, 2, 2, 1, 1, 1, 2} {
		require.Equal(t, fill(50, byte(10*tag)), c.take(0, to, uint64(tag)))
	}
	c.quiet()
}

// TestVectorsWaitWithinLimit: what was gathered for a send that waits counts against SendLimit.
func TestVectorsWaitWithinLimit(t *testing.T) {
	c := newCluster(t, 2, Config{Manual: true, SendLimit: 2*sendCost + 39}, fakeOpts{room: 1})
	parts := [][]byte{fill(8, 1), fill(32, 2)}
	var reqs []Request
	for range 2 { // one is under way, one waits
		reqs = append(reqs, c.e[0].IsendVec(1, 1, parts))
	}
	_, err := ended(t, c.e[0].IsendVec(1, 1, parts))
	require.ErrorIs(t, err, ErrFull)
	require.EqualValues(t, sendCost+40, c.e[0].Metrics().QueuedBytes)
	c.step()
	succeeded(t, reqs...)
	require.Zero(t, c.e[0].Metrics().QueuedBytes)
	for range reqs {
		require.Equal(t, slices.Concat(parts...), c.take(0, 1, 1))
	}
	c.quiet()
}

// TestWholeClass: less than a quarter of the memory of a message that was gathered is of no use,
// and all of a class has one length.
func TestWholeClass(t *testing.T) {
	lengths := map[int]int{}
	check := func(size int) {
		length, class := wholeClass(size)
		require.GreaterOrEqual(t, length, size)
		require.Less(t, 4*(length-size), max(size, 1), "%d bytes for %d", length, size)
		require.Less(t, class, len(wholes))
		if was, ok := lengths[class]; ok {
			require.Equal(t, was, length, "class %d", class)
		}
		lengths[class] = length
	}
	for size := 1; size < 5000; size++ {
		check(size)
	}
	for size := 4096; size <= min(longestSlice, math.MaxInt)/4; size *= 2 {
		check(size - 1)
		check(size)
		check(size + 1)
		check(size + size/2)
	}
	length, class := wholeClass(0)
	require.Equal(t, [2]int{1, 0}, [2]int{length, class})
}
