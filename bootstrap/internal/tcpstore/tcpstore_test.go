package tcpstore_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/tagmatch/tagmatch/bootstrap/internal/space"
	"github.com/tagmatch/tagmatch/bootstrap/internal/tcpstore"
	"github.com/tagmatch/tagmatch/bootstrap/internal/tcpstore/tcpstoretest"
	"github.com/tagmatch/tagmatch/internal/ports/portstest"
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
			var got [4][]byte
			var errs [4]error
			for r := range 4 {
				wg.Go(func() {
					id := space.Identity{Rank: r, Size: 4, LocalRank: -1, LocalSize: -1, JobID: "x"}
					c, err := tcpstore.Open(context.Background(), s.Addr(), "/tagmatch/"+string(rune('a'+size%20))+"/", id)
					if err != nil {
						errs[r] = err
						return
					}
					if c.Identity() != id {
						errs[r] = fmt.Errorf("identity %+v", c.Identity())
					}
					got[r], err = c.Broadcast(context.Background(), value)
					c.Abort(1, "does nothing")
					errs[r] = errors.Join(errs[r], err, c.Close())
				})
			}
			wg.Wait()
			require.NoError(t, errors.Join(errs[:]...))
			for _, v := range got {
				require.Equal(t, value, v)
			}
		}
		require.Len(t, s.Keys(), 3)
	})
}

// TestLateAgent: the ranks are there before the store.
func TestLateAgent(t *testing.T) {
	addr := fmt.Sprint("127.0.0.1:", portstest.Free(t, 1)[0])
	tried, done := make(chan struct{}), make(chan error, 1)
	ctx := &triesContext{Context: context.Background(), asked: func(n int) {
		if n == 1 {
			close(tried)
		}
	}}
	go func() {
		c, err := tcpstore.Open(ctx, addr, "p", space.Identity{Rank: 0, Size: 2})
		if err == nil {
			_, err = c.Broadcast(context.Background(), []byte("v"))
			_ = c.Close()
		}
		done <- err
	}()
	<-tried
	s, err := tcpstoretest.Start(addr, false)
	require.NoError(t, err)
	defer s.Close()
	require.NoError(t, <-done)
	require.Equal(t, []string{"prendezvous"}, s.Keys())
}

// triesContext hears that a try of Open has failed: Open asks then, once or twice, whether it has
// ended.
type triesContext struct {
	context.Context
	asked func(n int)
	n     int         // belongs to Open
	late  atomic.Bool // its deadline has passed, and it has not ended, as on a busy machine
}

func (c *triesContext) Err() error {
	c.n++
	c.asked(c.n)
	return c.Context.Err()
}

func (c *triesContext) Deadline() (time.Time, bool) { return time.Unix(1, 0), c.late.Load() }

// TestNobodyThere: the dial that the deadline has cut short does not hide what those before it have
// met.
func TestNobodyThere(t *testing.T) {
	for _, late := range []bool{false, true} {
		inner, cancel := context.WithCancel(context.Background())
		defer cancel()
		ctx := &triesContext{Context: inner}
		ctx.asked = func(n int) {
			ctx.late.Store(late)
			if n == 6 {
				cancel() // two tries after the first, or more
			}
		}
		_, err := tcpstore.Open(ctx, "127.0.0.1:1", "p", space.Identity{Rank: 1, Size: 2})
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorContains(t, err, "torchrun's store at 127.0.0.1:1: ")
		require.ErrorContains(t, err, "refused", "late: %v", late)
	}
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
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			var wg sync.WaitGroup
			wg.Go(func() {
				for n := 1; ; n++ {
					conn, err := ln.Accept()
					if err != nil {
						return
					}
					if n == 2 {
						cancel() // the first try has got its answer
					}
					wg.Go(func() {
						defer conn.Close()
						var b [9]byte
						_, _ = conn.Read(b[:])
						if tt.answer == nil {
							cancel()
						}
						_, _ = conn.Write(tt.answer)
						_, _ = conn.Read(b[:])
					})
				}
			})
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
