package tcpstore_test

import (
	"bytes"
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/tagmatch/tagmatch/bootstrap/internal/space"
	"github.com/tagmatch/tagmatch/bootstrap/internal/tcpstore"
	"github.com/tagmatch/tagmatch/bootstrap/internal/tcpstore/tcpstoretest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func start(t *testing.T, old bool) *tcpstoretest.Server {
	t.Helper()
	s, err := tcpstoretest.Start("127.0.0.1:0", old)
	require.NoError(t, err)
	t.Cleanup(s.Close)
	return s
}

func dialects(t *testing.T, f func(t *testing.T, old bool)) {
	t.Run("2.x", func(t *testing.T) { f(t, false) })
	t.Run("1.x", func(t *testing.T) { f(t, true) })
}

func TestBroadcast(t *testing.T) {
	dialects(t, func(t *testing.T, old bool) {
		s := start(t, old)
		for _, size := range []int{1, 300, space.MaxValue} {
			value := bytes.Repeat([]byte{0, 1, '\n', 255}, size)[:size]
			var wg sync.WaitGroup
			for r := range 4 {
				wg.Go(func() {
					id := space.Identity{Rank: r, Size: 4, LocalRank: -1, LocalSize: -1, JobID: "x"}
					c, err := tcpstore.Open(context.Background(), s.Addr(), "/tagmatch/"+string(rune('a'+size%20))+"/", id)
					require.NoError(t, err)
					require.Equal(t, id, c.Identity())
					got, err := c.Broadcast(context.Background(), value)
					require.NoError(t, err)
					require.Equal(t, value, got)
					c.Abort(1, "does nothing")
					require.NoError(t, c.Close())
				})
			}
			wg.Wait()
		}
		require.Len(t, s.Keys(), 3)
	})
}

// TestLateAgent: the ranks are there before the store.
func TestLateAgent(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	addr := ln.Addr().String()
	require.NoError(t, ln.Close())
	done := make(chan error, 1)
	go func() {
		c, err := tcpstore.Open(context.Background(), addr, "p", space.Identity{Rank: 0, Size: 2})
		if err == nil {
			_, err = c.Broadcast(context.Background(), []byte("v"))
			_ = c.Close()
		}
		done <- err
	}()
	time.Sleep(20 * time.Millisecond)
	s, err := tcpstoretest.Start(addr, false)
	require.NoError(t, err)
	defer s.Close()
	require.NoError(t, <-done)
	require.Equal(t, []string{"prendezvous"}, s.Keys())
}

func TestNobodyThere(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	_, err := tcpstore.Open(ctx, "127.0.0.1:1", "p", space.Identity{Rank: 1, Size: 2})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, "torchrun's store at 127.0.0.1:1: ")
	require.ErrorContains(t, err, "refused")
}

// lateContext is over some time after its deadline, as a context on a busy machine may be.
type lateContext struct {
	context.Context
	deadline time.Time
}

func (c lateContext) Deadline() (time.Time, bool) { return c.deadline, true }

// TestNobodyThereAtTheDeadline: the dial that the deadline has cut short does not hide what those
// before it have met.
func TestNobodyThereAtTheDeadline(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
	defer cancel()
	late := lateContext{ctx, time.Now().Add(200 * time.Millisecond)}
	_, err := tcpstore.Open(late, "127.0.0.1:1", "p", space.Identity{Rank: 1, Size: 2})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, "refused")
}

// TestCanceledWait: rank 0 never sets the key.
func TestCanceledWait(t *testing.T) {
	dialects(t, func(t *testing.T, old bool) {
		s := start(t, old)
		c, err := tcpstore.Open(context.Background(), s.Addr(), "p", space.Identity{Rank: 1, Size: 2})
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
		defer cancel()
		_, err = c.Broadcast(ctx, nil)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "waiting for rank 0")
		require.NoError(t, c.Close())
	})
}

// TestStrangers: what listens there is another program, or sends nonsense.
func TestStrangers(t *testing.T) {
	for _, tt := range []struct {
		name   string
		answer []byte // to whatever is sent first
		err    string
	}{
		{"another program", []byte("HTTP/1.1 400 Bad Request\r\n"), "another program listens there"},
		{"nothing", nil, "torchrun's store at"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			var wg sync.WaitGroup
			wg.Go(func() {
				for {
					conn, err := ln.Accept()
					if err != nil {
						return
					}
					wg.Go(func() {
						defer conn.Close()
						var b [9]byte
						_, _ = conn.Read(b[:])
						_, _ = conn.Write(tt.answer)
						_, _ = conn.Read(b[:])
					})
				}
			})
			ctx, cancel := context.WithTimeout(context.Background(), 400*time.Millisecond)
			defer cancel()
			c, err := tcpstore.Open(ctx, ln.Addr().String(), "p", space.Identity{Rank: 1, Size: 2})
			if err == nil {
				_, err = c.Broadcast(ctx, nil)
				_ = c.Close()
			}
			require.ErrorContains(t, err, tt.err)
			require.NoError(t, ln.Close())
			wg.Wait()
		})
	}
}

// TestHugeValue: a length that rank 0 cannot have sent is an error, no allocation.
func TestHugeValue(t *testing.T) {
	s := start(t, false)
	put := func(n int) {
		conn, err := net.Dial("tcp", s.Addr())
		require.NoError(t, err)
		defer conn.Close()
		b := []byte{tcpstore.OpValidate, 0xCE, 0xF7, 0x85, 0x3C, tcpstore.OpSet, 11, 0, 0, 0, 0, 0, 0, 0}
		b = append(b, "prendezvous"...)
		b = append(b, byte(n), byte(n>>8), byte(n>>16), 0, 0, 0, 0, 0)
		_, err = conn.Write(append(b, make([]byte, n)...))
		require.NoError(t, err)
	}
	put(space.MaxValue + 1)
	c, err := tcpstore.Open(context.Background(), s.Addr(), "p", space.Identity{Rank: 1, Size: 2})
	require.NoError(t, err)
	_, err = c.Broadcast(context.Background(), nil)
	require.ErrorContains(t, err, "a value of 4097 bytes")
	require.NoError(t, c.Close())
}
