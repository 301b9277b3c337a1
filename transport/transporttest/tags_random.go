package transporttest

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/matchmodel"
	"github.com/tagmatch/tagmatch/internal/testlevel"
	"github.com/tagmatch/tagmatch/transport"
)

// schedule is a random run of several engines: sends, receives, cancels and SYNCs in any order.
type schedule struct {
	*cluster
	engines []*engine
	msgs    [][][]message // by source, by destination
	recvs   [][]*receive  // by rank, in posting order
	nextID  uint64
}

// message is a sent message; its payload starts with its number.
type message struct {
	tag  uint64
	data []byte
}

// testTagsRandom compares the results of random schedules with MPI's rules.
func testTagsRandom(t *testing.T, h Harness, opts Options) {
	rounds := 12
	switch {
	case h.Long:
		rounds = 60
	case !testlevel.CI():
		rounds = 4
	}
	forced := 0
	for round := range rounds {
		opts.Seed += uint64(round) * 1000
		opts.MaxEager = []int{64, 300, 8 << 10}[round%3]
		opts.MaxTags = listSizes[1+round%5]
		opts.MaxOps = []int{0, 1, 2, 5}[round%4]
		s := h.schedule(t, 3, opts)
		for range 250 {
			s.act()
		}
		s.finish()
		s.check()
		for _, e := range s.engines {
			forced += e.forced
		}
	}
	if testlevel.CI() {
		require.Positive(t, forced, "no receive was removed by a forced DEL: the schedules are too tame")
	}
}

func (h Harness) schedule(t *testing.T, n int, opts Options) *schedule {
	s := &schedule{cluster: h.devices(t, n, opts), recvs: make([][]*receive, n)}
	for i := range n {
		e := newEngine(i)
		e.tr = s.openRank(i, e).Transport
		e.list = e.tr.TagList()
		e.between = func() { // receives that are dormant, as the message is not handled yet
			if s.rng.IntN(3) == 0 {
				s.recvRandom(i)
			}
		}
		require.NotNil(t, e.list)
		s.engines = append(s.engines, e)
		s.msgs = append(s.msgs, make([][]message, n))
	}
	s.connect(s.ranks)
	return s
}

// pick returns a tag of src and one of the masks that match it.
func (s *schedule) pick(src int) (tag, mask uint64, source int) {
	low := uint32(s.rng.IntN(3))
	if s.rng.IntN(3) == 0 {
		tag = uint64(low) // raw: anybody's
		mask, source = []uint64{exact, exact, 1 << 63}[s.rng.IntN(3)], matchmodel.AnySource
		return tag, mask, source
	}
	tag = packed(src, low)
	switch s.rng.IntN(5) {
	case 0: // any source
		return tag, exact &^ (1<<52 - 1<<32), matchmodel.AnySource
	case 1: // any tag
		return tag, exact &^ (1<<32 - 1), src
	}
	return tag, exact, src
}

func (s *schedule) act() {
	me := s.rng.IntN(len(s.ranks))
	e := s.engines[me]
	switch s.rng.IntN(10) {
	case 0, 1, 2:
		s.sendRandom(me, s.rng.IntN(len(s.ranks)))
	case 3, 4, 5:
		s.recvRandom(me)
	case 6:
		if n := len(e.posted); n > 0 {
			e.cancel(e.posted[s.rng.IntN(n)])
		}
	case 7:
		_ = e.list.Sync(e.handled)
	default:
		s.steps(s.rng.IntN(20))
	}
	e.retry()
}

func (s *schedule) recvRandom(me int) {
	tag, mask, _ := s.pick(s.rng.IntN(len(s.ranks)))
	limit := s.ranks[me].Caps().MaxEager
	buf := make([]byte, []int{0, 8, limit, limit + 200}[s.rng.IntN(4)])
	s.nextID++
	s.recvs[me] = append(s.recvs[me], s.engines[me].recv(s.nextID, tag, mask, buf, s.rng.IntN(8) > 0))
}

func (s *schedule) sendRandom(me, to int) {
	tag, _, _ := s.pick(me)
	e, n := s.engines[me], len(s.msgs[me][to])
	limit := e.tr.Caps().MaxEager
	data := fill(8+s.rng.IntN(limit), uint64(n))
	big := s.rng.IntN(3) == 0
	if big {
		data = fill(8+s.rng.IntN(3*limit), uint64(n))
	} else {
		data = data[:min(len(data), limit)]
	}
	binary.LittleEndian.PutUint64(data, uint64(n))
	var err error
	if big {
		s.nextID++
		ctx := uint32(s.nextID)
		region, regErr := e.tr.Register(to, data)
		require.NoError(s.t, regErr)
		err = e.tr.SendRndv(to, &transport.RndvHdr{AppCtx: ctx, Tag: tag, VA: region.Addr(), RKey: region.RKey(), Len: uint64(len(data))})
		if err == nil {
			e.sends[ctx] = &sending{region}
		} else {
			require.NoError(s.t, region.Dereg())
		}
	} else {
		err = e.tr.SendEager(to, uint32(me), tag, data)
	}
	if err == transport.ErrAgain {
		return
	}
	require.NoError(s.t, err)
	s.msgs[me][to] = append(s.msgs[me][to], message{tag, data})
}

// finish completes everything: each engine receives the remaining messages by wildcards.
func (s *schedule) finish() {
	done := func() bool {
		for me, e := range s.engines {
			if len(e.todo) > 0 || len(e.sends) > 0 || len(e.unexp) > 0 {
				return false
			}
			for _, r := range s.recvs[me] {
				if r.ended == 0 && (r.matched || r.deleting) {
					return false
				}
			}
		}
		got, sent := 0, 0
		for me := range s.engines {
			for _, r := range s.recvs[me] {
				if r.matched {
					got++
				}
			}
			for to := range s.ranks {
				sent += len(s.msgs[me][to])
			}
		}
		return got == sent
	}
	untilWith(s.t, "everything to end", done, func() {
		s.step()
		e := s.engines[s.rng.IntN(len(s.engines))]
		e.retry()
		if len(e.unexp) > 0 {
			s.nextID++
			s.recvs[e.me] = append(s.recvs[e.me], e.recv(s.nextID, 0, 0, nil, false))
		}
	})
}

// check compares the result with the matching rules, and every byte received.
func (s *schedule) check() {
	for me, e := range s.engines {
		require.Empty(s.t, e.faults, "rank %d", me)
		require.Zero(s.t, e.lost)
		h := &matchmodel.History{Messages: make([][]uint64, len(s.ranks))}
		seen := map[[2]int]bool{}
		byTag := map[[2]uint64][]int{}
		for src := range s.ranks {
			for i, m := range s.msgs[src][me] {
				h.Messages[src] = append(h.Messages[src], m.tag)
				byTag[[2]uint64{uint64(src), m.tag}] = append(byTag[[2]uint64{uint64(src), m.tag}], i)
			}
		}
		for _, r := range s.recvs[me] {
			require.LessOrEqual(s.t, r.ended, 1, "receive %d ends once", r.id)
			if r.canceled {
				continue
			}
			rec := matchmodel.Recv{Source: matchmodel.AnySource, Tag: r.tag, Mask: r.mask, Got: matchmodel.Unmatched}
			if r.matched {
				require.NoError(s.t, r.err)
				rec.GotSource, rec.Got = r.src, s.which(r, me, byTag)
				require.False(s.t, seen[[2]int{r.src, rec.Got}], "message %d of rank %d was received twice", rec.Got, r.src)
				seen[[2]int{r.src, rec.Got}] = true
			}
			h.Recvs = append(h.Recvs, rec)
		}
		require.NoError(s.t, matchmodel.Check(h), "rank %d", me)
	}
}

// which returns the message that a receive got, and checks it: the oldest one left of that source
// and tag, as those are received in posting order.
func (s *schedule) which(r *receive, me int, byTag map[[2]uint64][]int) int {
	key := [2]uint64{uint64(r.src), r.got}
	if len(byTag[key]) == 0 {
		require.Fail(s.t, "no such message", "%+v", r)
	}
	i := byTag[key][0]
	byTag[key] = byTag[key][1:]
	m := s.msgs[r.src][me][i]
	require.Equal(s.t, uint64(len(m.data)), r.n, "length of message %d from rank %d", i, r.src)
	fits := min(len(m.data), len(r.buf))
	require.True(s.t, bytes.Equal(m.data[:fits], r.buf[:fits]), "content of message %d from rank %d, receive %d", i, r.src, r.id)
	return i
}
