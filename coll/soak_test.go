package coll

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/tagmatch/tagmatch/internal/testlevel"
	"github.com/tagmatch/tagmatch/p2p"
	"github.com/tagmatch/tagmatch/p2p/p2ptest"
)

var (
	soakFor  = flag.Duration("soak", 0, "how long TestSoak goes on")
	soakSeed = flag.Uint64("soak-seed", 0, "the only seed of TestSoak")
)

// TestSoak plays random calls of all kinds on two Groups at once, blocking and started. In some
// epochs a member's context ends, or a rank leaves. All survivors then shrink both Groups, and go
// on with what they get. A call that succeeds has the right data; one may fail only where somebody
// has failed; and what Shrink gives is the ranks that live, and the smallest of their values.
//
//	go test ./coll -run TestSoak -soak 10m
//	go test ./coll -run TestSoak -soak-seed 4711
func TestSoak(t *testing.T) {
	until := time.Now().Add(*soakFor)
	if testlevel.CI() && *soakFor == 0 {
		until = time.Now().Add(15 * time.Second)
	}
	if *soakSeed != 0 {
		t.Run(fmt.Sprint("seed ", *soakSeed), func(t *testing.T) { playSoak(t, *soakSeed) })
		return
	}
	first := uint64(time.Now().UnixNano()) % 1e9
	for seed := first; !t.Failed() && (seed < first+3 || time.Now().Before(until)); seed++ {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { playSoak(t, seed) })
	}
}

func playSoak(t *testing.T, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 1))
	n := 2 + r.IntN(5)
	cfg := p2p.Config{Device: []string{"", "shm", "tcp"}[r.IntN(3)], Transport: []string{"", "rc", "tmsrq"}[r.IntN(3)]}
	if r.IntN(4) == 0 {
		cfg.SendLimit = -1
	}
	s := &soak{t: t}
	s.left.Add(n)
	p2ptest.RunConfig(t, n, cfg, func(w *p2p.World) {
		defer w.Close() // of a World that has lost ranks
		m := soakMember{soak: s, w: w, rng: rand.New(rand.NewPCG(seed, 2)), gone: make([]bool, n)}
		m.play()
	})
}

// soak is a run, on all ranks.
type soak struct {
	t    *testing.T
	left sync.WaitGroup // nobody leaves before all are at the end, but those that are to be lost
}

// soakMember is a rank's part. All ranks draw the same from rng.
type soakMember struct {
	*soak
	w       *p2p.World
	rng     *rand.Rand
	gone    []bool // by rank: it has left, or is about to
	groups  [2]*Group
	faults  bool // calls may fail
	pending [2][]soakStarted
}

// soakStarted is a started AllReduce.
type soakStarted struct {
	p    *Pending
	x    []matrix
	seed uint64
}

func (m *soakMember) play() {
	left := sync.OnceFunc(m.left.Done)
	defer left()
	for i := range m.groups {
		g, err := New(background, m.w.Comm())
		if !assert.NoError(m.t, err) {
			return
		}
		m.groups[i] = g
	}
	for epoch := range 6 {
		if !m.epoch() {
			return
		}
		m.shrink(epoch)
		forget()
	}
	for _, g := range m.groups {
		assert.NoError(m.t, g.Close())
	}
	left()
	m.left.Wait()
}

// epoch plays some calls, and returns false where this rank is to leave.
func (m *soakMember) epoch() bool {
	const steps = 12
	fault, who, at := m.rng.IntN(4), m.rng.IntN(len(m.gone)), m.rng.IntN(steps)
	leaves, cancels := fault == 0 && !m.gone[who] && m.living() > 1, fault == 1
	m.faults = m.faults || leaves || cancels
	for step := range steps {
		g, k, length, started, seed := m.rng.IntN(2), kind(m.rng.IntN(int(kinds))), m.length(), m.rng.IntN(3) == 0, m.rng.Uint64()>>1
		mine := step == at && who == m.w.Rank()
		if mine && leaves {
			return false
		}
		if step == at && leaves {
			m.gone[who] = true
		}
		switch {
		case step == at && cancels:
			m.check(m.canceled(m.groups[g], mine, length, seed))
		case started:
			x := vector(seed, m.groups[g].Rank(), length)
			m.pending[g] = append(m.pending[g], soakStarted{StartAllReduce(m.groups[g], product, x), x, seed})
		default:
			m.check(play(m.groups[g], k, length, seed))
		}
	}
	return true
}

func (m *soakMember) living() (n int) {
	for _, gone := range m.gone {
		if !gone {
			n++
		}
	}
	return n
}

func (m *soakMember) length() int { return []int{0, 1, 5, 100, 3000, 30_000, 100_000}[m.rng.IntN(7)] }

// canceled is an AllReduce in which the context of one member ends soon.
func (m *soakMember) canceled(g *Group, mine bool, length int, seed uint64) error {
	ctx, end := context.WithCancel(background)
	defer end()
	if mine {
		time.AfterFunc(rand.N(300*time.Microsecond), end)
	}
	x := vector(seed, g.Rank(), length)
	if err := AllReduce(ctx, g, product, x); err != nil {
		if !mine {
			assert.NotErrorIs(m.t, err, context.Canceled)
		}
		return err
	}
	return same(x, prefix(seed, g.Size(), length))
}

// check requires that a call has done what it is for, or was allowed to fail.
func (m *soakMember) check(err error) {
	if err == nil {
		return
	}
	allowed := errors.Is(err, p2p.ErrRevoked) || errors.Is(err, p2p.ErrPeerLost) || errors.Is(err, context.Canceled)
	assert.True(m.t, m.faults && allowed, "rank %d: %v", m.w.Rank(), err)
}

// shrink has all that live make Groups of themselves, when what they have started has ended.
func (m *soakMember) shrink(epoch int) {
	for i, old := range m.groups {
		for _, s := range m.pending[i] {
			err := s.p.Wait(background)
			if err == nil {
				err = same(s.x, prefix(s.seed, old.Size(), len(s.x)))
			}
			m.check(err)
		}
		m.pending[i] = nil
	}
	for _, old := range m.groups {
		_ = Barrier(background, old) // Shrink ends what others are still in
	}
	m.faults = false // who is lost has not called Shrink
	value := func(rank int) int64 { return int64((rank*7 + epoch*5) % 11) }
	for i, old := range m.groups {
		g, least, err := old.Shrink(background, value(m.w.Rank()))
		if err != nil {
			m.t.Errorf("rank %d, epoch %d: %v", m.w.Rank(), epoch, err)
			runtime.Goexit()
		}
		var living []int
		want := int64(11)
		for rank, gone := range m.gone {
			if !gone {
				living = append(living, rank)
				want = min(want, value(rank))
			}
		}
		var members []int
		for rank := range g.Size() {
			members = append(members, g.comm.WorldRank(rank))
		}
		assert.Equal(m.t, living, members, "rank %d, epoch %d", m.w.Rank(), epoch)
		assert.Equal(m.t, want, least, "rank %d, epoch %d", m.w.Rank(), epoch)
		assert.NoError(m.t, old.Close())
		m.groups[i] = g
	}
}
