package progress

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/progress/internal/flow"
)

// wantsSent are the WANTs among the messages of flow control, by tag.
func wantsSent(log *[]flowMsg) (tags []uint64) {
	for _, m := range *log {
		if m.kind == ctrlWant && m.want.Slot != flow.None {
			tags = append(tags, m.want.Tag)
		}
	}
	*log = nil
	return tags
}

// A probe that waits has its sender let go of what it is held up with, up to the message.
func TestHeldForProbe(t *testing.T) {
	for _, take := range []bool{false, true} {
		for _, first := range []bool{false, true} {
			c := tight(t, 2, fakeOpts{})
			var m *Message
			if take {
				m = new(Message)
			}
			var p Request
			if first {
				p = c.probe(1, AnySource, 2, exact, m)
			}
			c.holdUp(0, 1)
			wanted := c.e[0].Isend(1, 2, fill(8, 1))
			behind := c.e[0].Isend(1, 1, nil)
			if !first {
				c.step()
				open(t, wanted)
				p = c.probe(1, 0, 2, exact, m)
			}
			c.step()
			require.Equal(t, Status{0, 2, 8}, statusOf(t, p))
			succeeded(t, wanted)
			open(t, behind)
			if take {
				require.Equal(t, fill(8, 1), m.Bytes())
				m.Discard()
			} else {
				require.Equal(t, fill(8, 1), c.take(0, 1, 2))
			}
			c.takeAll(0, 1, 1, 0, 0)
			for range inCredit + 2 {
				c.take(0, 1, 1)
			}
			succeeded(t, behind)
			c.free()
			c.quiet()
		}
	}
}

// A probe that does not wait asks a peer that is held up once, however often it is repeated, and
// again when a message that it matches has come and gone to somebody else.
func TestHeldForIprobe(t *testing.T) {
	for _, tags := range []int{0, 4} {
		c := newCluster(t, 2, Config{Manual: true, UnexpectedLimit: tightLimit(2)}, fakeOpts{tags: tags})
		e := c.e[1]
		of, notOf := e.Group(0, ranksOf{0}), e.Group(0, ranksOf{1})
		log := c.watch(0)
		c.holdUp(0, 1)
		c.step()
		for range 3 {
			nothingFor(t, e, AnySource, 2, exact)
			nothingFor(t, e, 0, 3, exact)
			nothingFor(t, e, of, 8, exact)
			nothingFor(t, e, notOf, 9, exact)
			c.step()
		}
		require.Equal(t, []uint64{2, 3, 8}, wantsSent(log))
		wanted, behind := c.e[0].Isend(1, 4, fill(8, 1)), c.e[0].Isend(1, 7, nil)
		nothingFor(t, e, AnySource, 4, exact)
		r := e.Irecv(0, 4, exact, make([]byte, 8)) // matches what the probe has asked for
		c.step()
		require.Equal(t, []uint64{4, 4}, wantsSent(log))
		succeeded(t, r, wanted)
		open(t, behind)
		for range 3 {
			nothingFor(t, e, AnySource, 4, exact)
			c.step()
		}
		require.Equal(t, []uint64{4}, wantsSent(log))
		wanted = c.e[0].Isend(1, 4, fill(8, 2))
		c.step()
		require.EqualValues(t, 8, probed(t, e, 0, 4, exact).Len)
		require.Equal(t, fill(8, 2), c.take(0, 1, 4))
		for c.waiting(0, 1) != 0 {
			c.take(0, 1, 1)
		}
		succeeded(t, wanted, behind)
		for e.Metrics().UnexpectedNow != 0 {
			m, ok, err := e.Improbe(AnySource, 0, 0)
			require.NoError(t, err)
			require.True(t, ok)
			m.Discard()
		}
		c.step()
		c.free()
		c.quiet()
	}
}

// A receive takes the slot of a probe, if there is no other; the next probe asks again, and more
// receives and probes than slots let everything come.
func TestHeldProbeGivesSlot(t *testing.T) {
	c := tight(t, 2, fakeOpts{})
	e := c.e[1]
	log := c.watch(0)
	held := c.holdUp(0, 1)
	c.step()
	for tag := range uint64(flow.Slots) {
		nothingFor(t, e, 0, 100+tag, exact)
	}
	c.step()
	require.Len(t, wantsSent(log), flow.Slots)
	nothingFor(t, e, 0, 200, exact) // takes the slot of another probe
	c.step()
	require.Equal(t, []uint64{200}, wantsSent(log))
	var recvs []Request
	for tag := range uint64(flow.Slots) {
		recvs = append(recvs, e.Irecv(0, 300+tag, exact, nil))
	}
	c.step()
	require.Len(t, wantsSent(log), flow.Slots)
	require.False(t, e.peers[0].in.Probed())
	require.False(t, e.peers[0].in.All())
	open(t, held)
	nothingFor(t, e, 0, 200, exact)
	c.step()
	require.Len(t, wantsSent(log), 1)
	succeeded(t, held) // it was for everything
	for _, r := range recvs {
		r.Cancel()
	}
	canceled(t, recvs...)
	for range inCredit + 1 {
		c.take(0, 1, 1)
	}
	c.free()
	c.quiet()
}
