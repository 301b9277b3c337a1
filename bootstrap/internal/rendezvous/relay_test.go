package rendezvous

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/bootstrap/internal/ranktest"
	"github.com/tagmatch/tagmatch/internal/testlevel"
)

// treeJob starts a job in which each rank passes RELEASE on to two others.
func treeJob(t *testing.T, n int, tls string) []*Endpoint {
	t.Helper()
	return startWith(t, n, func(c candidate) candidate {
		c = c.with(t, given(0x5a), tls)
		c.fanOut = 2
		return c
	})
}

// direct counts the ranks that get RELEASE from rank 0.
func direct(list []*Endpoint) (n int) {
	h := hubOf(list[0])
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range h.seats[1:] {
		if !s.relayed {
			n++
		}
	}
	return n
}

func exchangeRounds(t *testing.T, list []*Endpoint, from, to int) {
	t.Helper()
	ctx := ranktest.Timeout(t)
	ranktest.Each(t, len(list), func(r int) error {
		for i := from; i < to; i++ {
			if err := exchangeRound(ctx, list[r], i); err != nil {
				return fmt.Errorf("round %d: %w", i, err)
			}
		}
		return nil
	})
}

// TestTree: rank 0 sends what was put to two ranks only, and all get it.
func TestTree(t *testing.T) {
	for _, n := range []int{3, 4, 7, 40} {
		list := treeJob(t, n, "")
		exchangeRounds(t, list, 0, 20)
		require.Equal(t, 2, direct(list), "%d ranks", n)
	}
}

// TestTreeParentFails: ranks whose connection to their parent breaks get what was put from rank 0.
func TestTreeParentFails(t *testing.T) {
	list := treeJob(t, 15, "")
	exchangeRounds(t, list, 0, 3)
	for _, r := range []int{1, 5} {
		children := list[r].children
		require.NoError(t, children.ln.Close())
		children.guests.each(func(c net.Conn) { _ = c.Close() })
	}
	exchangeRounds(t, list, 3, 20)
	require.Equal(t, 2+4, direct(list))
}

// TestTreeUnreachable: no rank can dial another one, but all reach rank 0.
func TestTreeUnreachable(t *testing.T) {
	list := treeJob(t, 9, "")
	for _, b := range list {
		if r := b.children; r != nil {
			_ = r.ln.Close()
			r.mu.Lock()
			r.closed = true
			r.mu.Unlock()
			r.guests.each(func(c net.Conn) { _ = c.Close() })
		}
	}
	exchangeRounds(t, list, 0, 5)
}

// TestTreeParentLeaves: a parent that leaves right after a fence has passed it on before.
func TestTreeParentLeaves(t *testing.T) {
	for range 20 {
		list := treeJob(t, 7, "")
		ctx := ranktest.Timeout(t)
		ranktest.Each(t, 7, func(r int) error {
			err := list[r].Fence(ctx)
			if r == 1 || r == 2 {
				return list[r].Close()
			}
			return err
		})
	}
}

// TestRelayStrangers: who does not know the secret, or is no child, gets nothing, and does not put
// out the children that are there.
func TestRelayStrangers(t *testing.T) {
	list := treeJob(t, 5, "")
	exchangeRounds(t, list, 0, 1) // a child without its connection would have asked rank 0
	r := list[1].children
	addr := r.ln.Addr().String()
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() {
			conn, err := net.Dial("tcp", addr)
			if err != nil {
				return
			}
			defer conn.Close()
			_, _ = conn.Write([]byte("GET / HTTP/1.1\r\n\r\n"))
		})
	}
	wg.Wait()
	me := candidate{}
	me.SetDefaults()
	for _, fake := range []*Endpoint{
		newEndpoint(3, 5, Info{Secret: make([]byte, SecretSize), JobID: list[1].Info().JobID}),
		newEndpoint(4, 5, Info{Secret: list[1].Info().Secret, JobID: "another run"}),
		newEndpoint(2, 5, Info{Secret: list[1].Info().Secret, JobID: list[1].Info().JobID}),
	} {
		c := newChild(fake, netipPort(t, addr))
		conn, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", addr)
		require.NoError(t, err)
		f, err := c.handshake(conn, &me.Config)
		if err == nil {
			_, err = f.read(maxHandshake)
		}
		require.Error(t, err)
		conn.Close()
		c.close()
	}
	exchangeRounds(t, list, 1, 3)
	require.Equal(t, 2, direct(list))
}

func netipPort(t *testing.T, addr string) netip.AddrPort {
	p, err := netip.ParseAddrPort(addr)
	require.NoError(t, err)
	return p
}

// TestLateChild: a child that connects when rank 0 has ended gets what its parent has, and then
// hears that nothing more comes.
func TestLateChild(t *testing.T) {
	list := treeJob(t, 5, "")
	exchangeRounds(t, list, 0, 1)
	parent := list[1]
	parent.fail(&RankError{0, "was lost"})
	late := newEndpoint(3, 5, Info{Secret: parent.info.Secret, JobID: parent.info.JobID})
	late.waiting = make(chan struct{})
	me := candidate{}
	me.SetDefaults()
	c := newChild(late, netipPort(t, parent.children.ln.Addr().String()))
	defer c.close()
	require.ErrorIs(t, c.read(&me.Config), io.EOF)
	require.Equal(t, uint32(1), late.fences)
}

// TestFenceOutlivesRankZero: a fence that rank 0 has left ends everywhere, although rank 0 has
// ended while its answer was on its way down the tree.
func TestFenceOutlivesRankZero(t *testing.T) {
	const n = 7
	rounds := 5
	if testlevel.Quick() {
		rounds = 1
	}
	for range rounds {
		list := treeJob(t, n, "")
		hubOf(list[0]).flushFor = time.Minute
		ranktest.Each(t, n, func(r int) error {
			if err := list[r].Put(context.Background(), "k", make([]byte, MaxValue)); err != nil {
				return err
			}
			err := list[r].Fence(ranktest.Timeout(t))
			if r == 0 && err == nil {
				endProcess(list[0])
			}
			return err
		})
		closeAll(t, list)
	}
}

// TestFenceEndsWithRankZero: a fence in which rank 0 has never been fails everywhere when that
// ends: who waits for the answer by the tree hears from there that none will come.
func TestFenceEndsWithRankZero(t *testing.T) {
	list := treeJob(t, 7, "")
	exchangeRounds(t, list, 0, 1) // the tree is connected
	ranktest.Each(t, 7, func(r int) error {
		if r == 0 {
			err := awaitArrival(hubOf(list[0]), 6)
			endProcess(list[0])
			return err
		}
		var lost *RankError
		if err := list[r].Fence(ranktest.Timeout(t)); !errors.As(err, &lost) || lost.Rank != 0 {
			return fmt.Errorf("fence without rank 0: %v", err)
		}
		return nil
	})
}

// endProcess ends the connections of rank 0 as the end of its process would.
func endProcess(b *Endpoint) {
	b.up.(*rootLink).store.guests.each(func(c net.Conn) { _ = c.(*net.TCPConn).CloseWrite() })
}

func (g *guests) each(f func(net.Conn)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for c := range g.open {
		f(c)
	}
}
