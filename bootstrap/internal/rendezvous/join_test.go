package rendezvous

import (
	"context"
	"net"
	"net/netip"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/bootstrap/internal/ranktest"
	"github.com/tagmatch/tagmatch/internal/ports/portstest"
)

func TestRankZeroGivesUp(t *testing.T) {
	at := candidates(t, 4)
	errs := ranktest.Outcomes(2, func(i int) error {
		me := at(2 * i)
		ctx := ranktest.Timeout(t)
		if i == 0 {
			ctx, me.Logger = ranktest.CancelOn(t, "rendezvous: rank has joined")
		}
		_, err := me.join(ctx)
		return err
	})
	require.ErrorIs(t, errs[0], context.Canceled)
	require.ErrorContains(t, errs[0], "still missing: ranks 1, 3 of 4")
	require.ErrorIs(t, errs[1], ErrRefused)
	require.ErrorContains(t, errs[1], "rank 0 gave up waiting for all ranks to join (context canceled); still missing: ranks 1, 3 of 4")
}

func TestNobodyAnswers(t *testing.T) {
	port := strconv.Itoa(portstest.Free(t, 1)[0])
	me := candidateOf(1, 2, port)
	ctx, logger := ranktest.CancelOn(t, "rendezvous: trying again")
	me.Logger = logger
	_, err := me.join(ctx)
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorContains(t, err, "ADDRESS=127.0.0.1:"+port)
	require.ErrorContains(t, err, "connection refused")
	require.ErrorContains(t, err, "is rank 0 running")
}

// lateContext is over some time after its deadline, as a context on a busy machine may be.
type lateContext struct {
	context.Context
	late atomic.Bool // the deadline has passed
}

func (c *lateContext) Deadline() (time.Time, bool) {
	at, ok := c.Context.Deadline()
	if c.late.Load() {
		at = time.Unix(1, 0)
	}
	return at, ok
}

// TestNobodyAnswersByTheDeadline: the dial that the deadline has cut short does not hide what those
// before it have met.
func TestNobodyAnswersByTheDeadline(t *testing.T) {
	inner, cancel := context.WithCancel(ranktest.Timeout(t))
	defer cancel()
	ctx := &lateContext{Context: inner}
	me := candidateOf(1, 2, strconv.Itoa(portstest.Free(t, 1)[0]))
	me.Logger = ranktest.On("rendezvous: trying again", func() {
		if ctx.late.Swap(true) {
			cancel() // the second try was late
		}
	})
	_, err := me.join(ctx)
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorContains(t, err, "connection refused")
}

// TestDialFrom: the first address that can reach the other end is used, and Loopback is left alone.
func TestDialFrom(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	for _, tt := range []struct {
		locals []string
		from   string
	}{
		{nil, "127.0.0.1"},
		{[]string{"127.0.0.1"}, "127.0.0.1"},
		{[]string{"10.77.0.1"}, "127.0.0.1"},
		{[]string{"10.77.0.1", "::1", "127.0.0.1"}, "127.0.0.1"},
	} {
		var locals []netip.Addr
		for _, s := range tt.locals {
			locals = append(locals, netip.MustParseAddr(s))
		}
		conn, err := dialFrom(t.Context(), net.Dialer{}, locals, l.Addr().String())
		require.NoError(t, err, tt.locals)
		require.Equal(t, tt.from, ipOf(conn.LocalAddr()).String())
		conn.Close()
	}
	_, err = dialFrom(t.Context(), net.Dialer{}, []netip.Addr{netip.MustParseAddr("::1")}, l.Addr().String())
	require.Error(t, err, "no chosen address is of its family")
}
