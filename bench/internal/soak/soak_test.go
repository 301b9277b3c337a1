package soak

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/p2p"
	"github.com/tagmatch/tagmatch/p2p/p2ptest"
)

func TestRounds(t *testing.T) {
	for _, transport := range []string{"rc", "tmsrq"} {
		for _, mode := range []p2p.ProgressMode{p2p.ProgressAuto, p2p.ProgressManual} {
			cfg := p2p.Config{Transport: transport, Progress: mode, OffloadMin: -1, UnexpectedLimit: 64 << 10}
			p2ptest.RunConfig(t, 3, cfg, func(w *p2p.World) {
				for range 2 {
					got, err := Run(w, Options{Size: 100 << 10, Count: 10})
					require.NoError(t, err)
					require.Equal(t, 1, got.Rounds)
					if w.Rank() == 0 {
						require.Positive(t, got.Messages)
						require.Greater(t, got.Bytes, got.Messages)
					}
				}
			})
		}
	}
}

// side is one rank's side of an exchange of a round whose plans are not empty.
func side(w *p2p.World, number int) *exchange {
	r := &round{Options: Options{Size: 1000, Count: 10}, w: w}
	x := &exchange{round: r, w: w, ctx: context.Background(), number: number, rng: rand.New(rand.NewPCG(1, 2)), scratch: make([]byte, 1000)}
	for x.least() < 3 {
		r.seed++
	}
	return x
}

// least is the length of the shortest plan.
func (x *exchange) least() int {
	n := len(x.briefs(0))
	for src := range x.w.Size() {
		for dst := range x.w.Size() {
			if src != dst {
				n = min(n, len(x.plan(src, dst)))
			}
		}
	}
	return n
}

// pair runs f as one of two ranks.
func pair(t *testing.T, f func(w *p2p.World)) {
	p2ptest.Run(t, 2, func(w *p2p.World) {
		if w.Rank() == 0 {
			f(w)
		}
	})
}

// TestTake: what is received must be what comes next, byte by byte.
func TestTake(t *testing.T) {
	pair(t, func(w *p2p.World) {
		x := side(w, 0)
		list := x.plan(1, 0)
		status := func(m *message) p2p.Status { return p2p.Status{Source: m.src, Tag: x.tag(m.sub), Len: int64(m.size)} }
		take := func(c *cursors, m *message) error { return c.take(status(m), m.contents(make([]byte, 1000))) }
		c := x.expected(false)
		require.Equal(t, len(list), c.count(0))
		require.ErrorContains(t, take(c, &list[1]), "want message 0 of rank 1", "the second before the first")

		c = x.expected(false)
		for i := range list {
			require.NoError(t, take(c, &list[i]))
		}
		require.ErrorContains(t, take(c, &list[0]), "which has sent no more", "twice")
		require.ErrorContains(t, c.take(p2p.Status{Source: 2}, nil), "rank 2, which there is not")

		// Where receives name the tag another tag may be first.
		c = x.expected(true)
		for sub := range p2p.Tag(subs) {
			for i := range list {
				if list[i].sub == sub {
					require.NoError(t, take(c, &list[i]))
				}
			}
			require.Zero(t, c.count(sub))
		}

		for i := range list {
			if m := &list[i]; m.size > 0 {
				buf := m.contents(make([]byte, 1000))
				buf[m.size-1]++
				require.ErrorContains(t, x.check(m, status(m), buf), "arrived damaged")
				st := status(m)
				st.Len--
				require.Error(t, x.check(m, st, buf))
			}
		}
	})
}

// TestTakenBack: a message that was received although its sender has taken it back, one that is
// received twice, and one that is left, are found.
func TestTakenBack(t *testing.T) {
	for name, play := range map[string]struct {
		send []int
		fate []byte
		want string
	}{
		"taken back": {[]int{0, 1, 2}, []byte{sent, taken, sent}, "message 1 was received, and its Send has taken it back"},
		"twice":      {[]int{0, 0, 1}, []byte{sent, sent, sent}, "message 0 of 3 was received after message 0"},
		"overtaken":  {[]int{1, 0, 2}, []byte{sent, sent, sent}, "message 0 of 3 was received after message 1"},
		"unknown":    {[]int{0, 2}, []byte{sent, unknown, sent}, ""},
		"left":       {[]int{0, 1}, []byte{taken, taken, taken}, "is left"},
	} {
		t.Run(name, func(t *testing.T) {
			p2ptest.Run(t, 2, func(w *p2p.World) {
				x := side(w, 0)
				for len(x.briefs(0)) != 3 {
					x.round.seed++
				}
				if w.Rank() == 0 {
					x.sendThese(t, play.send, play.fate)
					return
				}
				_, err := w.Comm().Recv(x.ctx, 0, tagEnd, nil) // all is here
				require.NoError(t, err)
				err = x.recvBriefly()
				if play.want == "" {
					require.NoError(t, err)
				} else {
					require.ErrorContains(t, err, play.want)
				}
			})
		})
	}
}

// sendThese sends these messages of rank 0, and says that this has become of all.
func (x *exchange) sendThese(t *testing.T, numbers []int, fate []byte) {
	for _, n := range numbers {
		m := x.briefs(0)[n]
		buf := binary.LittleEndian.AppendUint64(nil, uint64(n))
		buf = append(buf, m.contents(make([]byte, m.size))...)
		require.NoError(t, x.w.Send(x.ctx, 1, x.tag(m.sub), buf))
	}
	require.NoError(t, x.w.Send(x.ctx, 1, x.told(), fate))
	require.NoError(t, x.w.Comm().Send(x.ctx, 1, tagEnd, nil))
}
