package coll_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/p2p/internal/coll"
)

// message is one on its way, by whom and to whom it goes and in which round: nothing else is to
// tell messages apart.
type message struct{ round, from, to int }

// wire carries the messages of an operation of n goroutines. What is sent twice, or received with
// another length, is an error.
type wire struct {
	mu   sync.Mutex
	sent map[message]chan []byte
	used map[message]bool
}

func (w *wire) channel(m message) chan []byte {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.sent[m] == nil {
		w.sent[m] = make(chan []byte, 1)
	}
	return w.sent[m]
}

type peer struct {
	w           *wire
	rank, size  int
	rounds      int
	failAtRound int
}

var errFails = errors.New("it fails")

func (p *peer) Rank() int { return p.rank }
func (p *peer) Size() int { return p.size }

func (p *peer) Exchange(ctx context.Context, round, to int, out []byte, from int, in []byte) error {
	if round != p.rounds || to == p.rank || from == p.rank {
		return fmt.Errorf("round %d after %d, rank %d to %d from %d", round, p.rounds, p.rank, to, from)
	}
	p.rounds++
	if round == p.failAtRound {
		return errFails
	}
	m := message{round, p.rank, to}
	p.w.mu.Lock()
	again := p.w.used[m]
	p.w.used[m] = true
	p.w.mu.Unlock()
	if again {
		return fmt.Errorf("%v is sent twice", m)
	}
	p.w.channel(m) <- bytes.Clone(out)
	select {
	case got := <-p.w.channel(message{round, from, p.rank}):
		if len(got) != len(in) {
			return fmt.Errorf("%d bytes for %d", len(got), len(in))
		}
		copy(in, got)
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// each calls f for each of n ranks in a goroutine of its own, and returns their errors.
func each(n int, failing int, f func(p coll.Peers) error) []error {
	w := &wire{sent: map[message]chan []byte{}, used: map[message]bool{}}
	errs := make([]error, n)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var ranks sync.WaitGroup
	for r := range n {
		ranks.Go(func() {
			p := &peer{w: w, rank: r, size: n, failAtRound: -1}
			if r == failing {
				p.failAtRound = 0
			}
			errs[r] = f(&cancelling{p, ctx})
			if errs[r] != nil {
				cancel()
			} else if want := bits.Len(uint(n - 1)); p.rounds != want {
				errs[r] = fmt.Errorf("%d rounds, %d are enough", p.rounds, want)
			}
		})
	}
	ranks.Wait()
	return errs
}

// cancelling ends what waits once a rank has failed.
type cancelling struct {
	*peer
	ctx context.Context
}

func (c *cancelling) Exchange(_ context.Context, round, to int, out []byte, from int, in []byte) error {
	return c.peer.Exchange(c.ctx, round, to, out, from, in)
}

var background = context.Background()

func sizes() []int {
	list := []int{64, 100, 127, 128, 129}
	for n := 1; n <= 33; n++ {
		list = append(list, n)
	}
	return list
}

// TestModel compares the operations with what one goroutine computes of all ranks' values.
func TestModel(t *testing.T) {
	for _, n := range sizes() {
		rng := rand.New(rand.NewPCG(1, uint64(n)))
		words, records := make([][]uint64, n), make([]byte, 0, 16*n)
		want := []uint64{^uint64(0), ^uint64(0), ^uint64(0)}
		for r := range n {
			// Most bits are set in all but one rank: each rank's word must count.
			words[r] = []uint64{^(uint64(1) << (r % 64)), rng.Uint64() | rng.Uint64(), ^uint64(0)}
			for i, w := range words[r] {
				want[i] &= w
			}
			for range 16 {
				records = append(records, byte(rng.Uint32()))
			}
		}
		for r, err := range each(n, -1, func(p coll.Peers) error { return coll.And(background, p, words[p.Rank()]) }) {
			require.NoError(t, err, "rank %d of %d", r, n)
			require.Equal(t, want, words[r], "rank %d of %d", r, n)
		}
		all := make([][]byte, n)
		for r, err := range each(n, -1, func(p coll.Peers) error {
			r := p.Rank()
			all[r] = make([]byte, len(records))
			copy(all[r][16*r:], records[16*r:16*r+16])
			return coll.Gather(background, p, all[r])
		}) {
			require.NoError(t, err, "rank %d of %d", r, n)
			require.Equal(t, records, all[r], "rank %d of %d", r, n)
		}
	}
}

// Nobody leaves a barrier before all have come.
func TestBarrier(t *testing.T) {
	for _, n := range sizes() {
		var mu sync.Mutex
		came := 0
		for r, err := range each(n, -1, func(p coll.Peers) error {
			mu.Lock()
			came++
			mu.Unlock()
			err := coll.Barrier(background, p)
			mu.Lock()
			defer mu.Unlock()
			if came != n {
				return fmt.Errorf("%d of %d have come", came, n)
			}
			return err
		}) {
			require.NoError(t, err, "rank %d of %d", r, n)
		}
	}
}

func TestErrors(t *testing.T) {
	for _, op := range []func(p coll.Peers) error{
		func(p coll.Peers) error { return coll.And(background, p, make([]uint64, 1)) },
		func(p coll.Peers) error { return coll.Gather(background, p, make([]byte, 5)) },
	} {
		require.Contains(t, each(5, 2, op), errFails)
	}
	for _, err := range each(3, -1, func(p coll.Peers) error { return coll.Gather(background, p, make([]byte, 4)) }) {
		require.EqualError(t, err, "coll: 4 bytes are no records of equal size for 3 ranks")
	}
}
