package soft

import (
	"bytes"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/testlevel"
	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/loop"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/wire"
)

// told polls a device until something is told, and at most 100 times.
func (r *rig) told(t *testing.T, i int) verbs.Told {
	t.Helper()
	for range 100 {
		r.poll(t, i)
		if got, ok := r.d[i].PollTold(); ok {
			return got
		}
	}
	t.Fatal("nothing is told")
	return verbs.Told{}
}

// untold checks that nothing is told.
func (r *rig) untold(t *testing.T, i int) {
	t.Helper()
	r.poll(t, i)
	_, ok := r.d[i].PollTold()
	require.False(t, ok)
}

// TestTellFull: what the wire does not take waits, up to a limit; what is told then is told in its
// order.
func TestTellFull(t *testing.T) {
	const room = 4
	r := newRig(t, loop.NewFabric(loop.Options{Queue: room}))
	to := r.d[1].Address()
	for i := range byte(room + mostWaiting) {
		require.NoError(t, r.d[0].Tell(to, []byte{i}))
	}
	require.ErrorIs(t, r.d[0].Tell(to, []byte{99}), syscall.ENOBUFS)
	r.poll(t, 0)
	require.ErrorIs(t, r.d[0].Tell(to, []byte{99}), syscall.ENOBUFS)
	for i := range byte(room + mostWaiting) {
		require.Equal(t, []byte{i}, r.told(t, 1).Msg)
		r.poll(t, 0)
	}
	r.untold(t, 1)
	require.Empty(t, r.d[0].lines.waiting)
	require.False(t, r.d[0].telling)
}

// TestTellWakes: who sleeps is woken for a message that had to wait, since nobody else sends it.
func TestTellWakes(t *testing.T) {
	r := newRig(t, loop.NewFabric(loop.Options{Queue: 1}))
	d := r.d[0]
	channel, err := d.CreateCompChannel()
	require.NoError(t, err)
	cq, err := d.CreateCQ(verbs.CQInitAttr{CQE: 4, Channel: channel})
	require.NoError(t, err)
	require.NoError(t, cq.Arm(false))
	r.poll(t, 0)
	for i := range byte(2) {
		require.NoError(t, d.Tell(r.d[1].Address(), []byte{i}))
	}
	late := time.AfterFunc(testlevel.Patience(10*time.Second), channel.Wake)
	require.NoError(t, channel.Wait())
	require.True(t, late.Stop(), "nothing has woken it")
	require.NoError(t, cq.Destroy())
	require.NoError(t, channel.Close())
	for range 2 {
		r.told(t, 1)
		r.poll(t, 0)
	}
}

// TestLineFaults: a line ends with its link, with what waited, and queue pairs fail with it; the
// next Tell makes another one. The causes are those of the link.
func TestLineFaults(t *testing.T) {
	f := NewFabric()
	r := newRig(t, f)
	require.NoError(t, r.d[0].Tell(r.d[1].Address(), []byte("one")))
	require.Equal(t, "one", string(r.told(t, 1).Msg))
	require.NoError(t, r.d[0].Tell(r.d[1].Address(), []byte("lost")))
	loop.Break(f, r.d[0].self.ID, r.d[1].self.ID)
	for i := range 2 {
		end := r.told(t, i)
		require.Equal(t, r.d[1-i].Address(), end.From)
		require.Nil(t, end.Msg)
		require.ErrorContains(t, end.Err, "cut")
		require.Equal(t, verbs.QPSErr, r.q[i].State())
		ev, _ := r.d[i].PollAsync()
		require.Equal(t, verbs.AsyncEvent{Type: verbs.EventQPFatal, QP: r.q[i].Num(), Err: end.Err}, ev)
		r.untold(t, i)
		require.Zero(t, r.d[i].lines.count())
		require.Empty(t, r.d[i].lines.peers)
	}
	require.NoError(t, r.d[1].Tell(r.d[0].Address(), []byte("two")))
	require.Equal(t, "two", string(r.told(t, 0).Msg))
	for i := range 2 {
		require.Equal(t, 1, r.d[i].lines.count())
	}
	loop.Kill(f, r.d[1].self.ID)
	require.ErrorIs(t, r.told(t, 0).Err, verbs.ErrPeerEnded)
	_, err := r.d[0].Reaches(r.d[1].Address())
	require.ErrorIs(t, err, syscall.EHOSTUNREACH)
	require.ErrorIs(t, r.d[0].Tell(r.d[1].Address(), []byte("three")), syscall.EHOSTUNREACH)
	r.untold(t, 0)
}

// TestUnpolledLines: messages of a device that were not polled count on its next lines too, or it
// could have this one keep any number.
func TestUnpolledLines(t *testing.T) {
	f := NewFabric()
	r := newRig(t, f)
	for i := range byte(mostUnpolled) {
		require.NoError(t, r.d[0].Tell(r.d[1].Address(), []byte{i}))
		r.poll(t, 1)
		loop.Break(f, r.d[0].self.ID, r.d[1].self.ID)
		r.poll(t, 0)
		r.poll(t, 1)
		_, _ = r.d[0].PollTold()
	}
	require.NoError(t, r.d[0].Tell(r.d[1].Address(), []byte{99}))
	r.poll(t, 1)
	require.ErrorIs(t, r.told(t, 0).Err, verbs.ErrAccused)
	for i := range byte(mostUnpolled) {
		require.Equal(t, []byte{i}, r.told(t, 1).Msg)
		require.Error(t, r.told(t, 1).Err)
	}
	r.untold(t, 1)
	require.Empty(t, r.d[1].lines.peers)
	require.NoError(t, r.d[0].Tell(r.d[1].Address(), []byte("more")))
	require.Equal(t, "more", string(r.told(t, 1).Msg))
}

// peerLink is a link to a device.
type peerLink struct {
	fakeLink
	peer *wire.Address
}

func (l *peerLink) Peer() *wire.Address { return l.peer }

// TestTellHostile: a told message that is none ends the link with a violation.
func TestTellHostile(t *testing.T) {
	long := make([]byte, verbs.MaxTell+1)
	for name, c := range map[string]struct {
		h       wire.Header
		payload []byte
	}{
		"empty":          {wire.Header{}, nil},
		"long":           {wire.Header{Length: uint32(len(long))}, long},
		"wrong length":   {wire.Header{Length: 2}, []byte{1}},
		"to a pair":      {wire.Header{Length: 1, QPN: 5}, []byte{1}},
		"to a past pair": {wire.Header{Length: 1, QPN: 1 << qpIndexBits}, []byte{1}},
	} {
		for _, known := range []bool{false, true} {
			t.Run(fmt.Sprint(name, known), func(t *testing.T) {
				d, err := Open(Config{Fabric: NewFabric()})
				require.NoError(t, err)
				defer func() { require.NoError(t, d.Close()) }()
				l := &peerLink{peer: &wire.Address{ID: wire.NewDeviceID()}}
				if known {
					_, _ = (*fromWire)(d).Receive(l, &wire.Header{Op: wire.OpTell, Length: 1}, []byte{7})
					require.Equal(t, 1, d.lines.count())
				}
				c.h.Op = wire.OpTell
				ok, more := (*fromWire)(d).Receive(l, &c.h, c.payload)
				require.True(t, ok && more)
				require.True(t, l.accused)
				if known {
					got, _ := d.PollTold()
					require.Equal(t, verbs.Told{From: l.peer.Encode(), Msg: []byte{7}}, got)
					got, _ = d.PollTold()
					require.ErrorIs(t, got.Err, verbs.ErrProtocol)
				}
				_, ok = d.PollTold()
				require.False(t, ok)
				require.Empty(t, d.lines.peers)
			})
		}
	}
}

// TestAnotherLink: a peer that tells on a new link has given up the old one, whose end comes first.
func TestAnotherLink(t *testing.T) {
	d, err := Open(Config{Fabric: NewFabric()})
	require.NoError(t, err)
	defer func() { require.NoError(t, d.Close()) }()
	peer := &wire.Address{ID: wire.NewDeviceID()}
	links := []*peerLink{{peer: peer}, {peer: peer}}
	for i, l := range links {
		_, _ = (*fromWire)(d).Receive(l, &wire.Header{Op: wire.OpTell, Length: 1}, []byte{byte(i)})
	}
	require.True(t, links[0].closed)
	require.False(t, links[1].closed)
	for i := range links {
		got, _ := d.PollTold()
		require.Equal(t, []byte{byte(i)}, got.Msg)
		if i == 0 {
			got, _ = d.PollTold()
			require.ErrorIs(t, got.Err, verbs.ErrPeerClosed)
		}
	}
	require.Equal(t, 1, d.lines.count())
	(*fromWire)(d).LinkDown(links[0], verbs.ErrPeerEnded) // it is nobody's any more
	require.Equal(t, 1, d.lines.count())
}

// TestReachesMakesNothing: neither end has a link after it.
func TestReachesMakesNothing(t *testing.T) {
	f := NewFabric()
	var d [2]*Device
	for i := range d {
		var err error
		d[i], err = Open(Config{Fabric: f, Rank: i})
		require.NoError(t, err)
	}
	for i := range d {
		name, err := d[i].Reaches(d[1-i].Address())
		require.NoError(t, err)
		require.Equal(t, WireLoop, name)
	}
	require.False(t, d[0].wires[0].(*loop.Wire).Expects() || d[1].wires[0].(*loop.Wire).Expects())
	require.NoError(t, d[1].Close())
	_, err := d[0].Reaches(d[1].Address())
	require.ErrorIs(t, err, syscall.EHOSTUNREACH)
	require.NoError(t, d[0].Close())
	other, err := Open(Config{Fabric: NewFabric()})
	require.NoError(t, err)
	_, err = other.Reaches(d[0].Address())
	require.ErrorIs(t, err, syscall.EHOSTUNREACH)
	require.NoError(t, other.Close())
}

// TestToldIsTheirs: a message is the program's, and stays as it is when others come.
func TestToldIsTheirs(t *testing.T) {
	r := newRig(t, NewFabric())
	var got [][]byte
	for i := range byte(50) {
		require.NoError(t, r.d[0].Tell(r.d[1].Address(), bytes.Repeat([]byte{i}, 40)))
		got = append(got, r.told(t, 1).Msg)
	}
	for i, msg := range got {
		require.Equal(t, bytes.Repeat([]byte{byte(i)}, 40), msg)
	}
}
