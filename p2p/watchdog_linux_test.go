package p2p

import (
	"bytes"
	"context"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/bootstrap"
	"github.com/tagmatch/tagmatch/internal/inspect"
	"github.com/tagmatch/tagmatch/internal/inspect/doors"
)

// TestWatchdogTicks: a rank that rests is reported, again when it has rested for twice as long, and
// not for the time in which its process was stopped.
func TestWatchdogTicks(t *testing.T) {
	w, err := Init(t.Context(), Config{})
	require.NoError(t, err)
	defer w.Close()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() {
		_, err := w.Comm().Recv(ctx, 0, 7, nil)
		ended <- err
	}()
	names, err := doors.Find()
	require.NoError(t, err)
	me := names[slices.IndexFunc(names, func(n doors.Name) bool { return n.PID == os.Getpid() })]
	for doors.LookForRest(t.Context(), []doors.Name{me}, time.Millisecond, true).For < time.Millisecond {
		time.Sleep(time.Millisecond)
	}
	var out bytes.Buffer
	const limit = time.Millisecond // ticks are counted, whenever they come
	d := &watchdog{w: w, name: me, limit: limit, out: &out, next: limit, moved: w.eng.Moved()}
	tick := func(n int, stopped time.Duration) {
		for range n {
			d.last = time.Now().Add(-stopped)
			d.tick(t.Context())
		}
	}
	tick(watchdogTicks-1, 0)
	require.Empty(t, out.String())
	tick(1, time.Hour)
	tick(watchdogTicks-1, 0)
	require.Empty(t, out.String())
	begin := time.Now()
	tick(1, 0)
	require.GreaterOrEqual(t, d.last.Sub(begin), doors.BetweenLooks, "the time of a look is none in which the process was stopped")
	require.Contains(t, out.String(), "tagmatch: rank 0: nothing of the job has moved for ")
	reported := out.Len()
	tick(1, 0)
	require.Equal(t, reported, out.Len())
	require.GreaterOrEqual(t, d.next, 2*limit)
	d.next = d.rest // it has rested for so long
	tick(1, 0)
	require.Greater(t, out.Len(), reported)
	cancel()
	require.ErrorIs(t, <-ended, context.Canceled)
	tick(1, 0)
	require.Zero(t, d.rest)
	require.Equal(t, limit, d.next)
}

// TestWatchdogSparesReceivers: a message that takes longer than the limit ends no job.
func TestWatchdogSparesReceivers(t *testing.T) {
	w, err := Init(t.Context(), Config{})
	require.NoError(t, err)
	defer w.Close()
	for where, end := range map[string]string{
		inspect.WhereRead: "What moves at rank 0 is not seen.\nSo the watchdog does not end the job.\n",
		"software":        "The watchdog ends the job.\n",
	} {
		var out bytes.Buffer
		d := &watchdog{w: w, limit: time.Minute, abort: true, out: &out}
		d.report(&doors.Rest{For: time.Minute, Now: []inspect.State{
			{Receives: []inspect.Receive{{N: 1, Where: where}}},
			{Silent: "the door of rank 0 is of user 7"}, // which that user has made
		}})
		require.True(t, strings.HasSuffix(out.String(), end), out.String())
	}
}

// closing is a Bootstrap whose Close calls a function first.
type closing struct {
	Bootstrap
	first func()
}

func (c closing) Close() error {
	c.first()
	return c.Bootstrap.Close()
}

// TestWatchdogEndsFirst: the end of a World takes as long as its Bootstrap does, and is no rest.
func TestWatchdogEndsFirst(t *testing.T) {
	boot, err := bootstrap.Detect(t.Context(), bootstrap.Options{})
	require.NoError(t, err)
	stopped, closed := false, false
	w, err := Init(t.Context(), Config{Bootstrap: closing{boot, func() { closed = stopped }}})
	require.NoError(t, err)
	w.stopWatchdog = func() { stopped = true }
	require.NoError(t, w.Shutdown(t.Context()))
	require.True(t, closed)
}
