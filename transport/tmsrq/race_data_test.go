package tmsrq_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/verbs/soft/softtest"
)

// Where messages land.

// 32: the device is never given a buffer that a message may not fit into: software finds a message
// too long, and the connection stays up.
func TestRace32EagerTooLong(t *testing.T) {
	for _, n := range []int{1, 100, maxEager} {
		r := newRaceRig(t, softtest.TM{}, 2)
		for id, room := range []int{0, 1, 31, 99, maxEager - 1, maxEager} {
			for k, tag := range []uint64{5, packed(0, 5)} {
				mem, want := make([]byte, room+50), fill(n, 1)
				i := 2*id + k
				r.add(uint64(i), tag, mem[:room:room])
				r.send(0, tag, want)
				ev := r.event("delivered", i)
				require.NoError(t, ev.Err)
				require.EqualValues(t, n, ev.Len)
				k := min(room, n)
				require.Equal(t, want[:k], mem[:k])
				require.Equal(t, make([]byte, 50), mem[room:], "behind the buffer")
			}
		}
		require.Empty(t, r.of(1, "lost"))
		require.Empty(t, r.of(0, "lost"))
	}
}

// 33, 34: the headers of a rendezvous that is too long are never put into a buffer that is too
// short for them, nor anywhere else where the program would see them; software gets them.
func TestRace34RendezvousTooLong(t *testing.T) {
	r := newRaceRig(t, softtest.TM{}, 2)
	data := fill(50_000, 3)
	for i, room := range []int{0, 1, 15, 16, 31, 32, 100, maxEager - 1} {
		buf := make([]byte, room)
		r.add(uint64(i), packed(0, 5), buf)
		h := r.rndv(packed(0, 5), data, 50_000)
		ev := r.event("incomplete", i)
		require.Equal(t, [4]uint64{uint64(h.AppCtx), h.VA, uint64(h.RKey), h.Len}, [4]uint64{uint64(ev.AppCtx), ev.VA, uint64(ev.RKey), ev.Len})
		require.Equal(t, make([]byte, room), buf)
	}
	r.settle()
	require.Empty(t, r.of(1, "delivered"))
	require.Empty(t, r.of(0, "fin"))
	require.Empty(t, r.of(1, "lost"))
}

// 50: a software rendezvous request is received into the buffer that its data will overwrite: the
// transport has copied what it still needs of the request, and the data arrives.
func TestRace50RequestInBuffer(t *testing.T) {
	r := newRaceRig(t, softtest.TM{}, 2)
	data, buf := fill(maxEager+100, 3), make([]byte, maxEager+100)
	r.add(1, packed(0, 5), buf)
	r.sink[1].incomplete = func() {
		require.NotEqual(t, make([]byte, 100), buf[:100], "the request is in the buffer")
		clear(buf)
	}
	h := r.rndv(packed(0, 5), data, 5<<30) // more than a device can do
	ev := r.event("incomplete", 0)
	require.Equal(t, "software header!", string(ev.Data))
	require.Equal(t, [4]uint64{uint64(h.AppCtx), h.VA, uint64(h.RKey), h.Len}, [4]uint64{uint64(ev.AppCtx), ev.VA, uint64(ev.RKey), ev.Len})
	require.NoError(t, r.tr[1].Read(0, buf, ev.VA, ev.RKey, 9))
	require.NoError(t, r.event("read", 0).Err)
	require.Equal(t, data, buf)
}
