package p2p_test

import (
	"bytes"
	"cmp"
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/p2p"
	"github.com/tagmatch/tagmatch/p2p/p2ptest"
)

// TestDeadlineAgainstIdleRank has rank 0 send to, and receive from, a rank in ProgressManual that
// does not call the library.
func TestDeadlineAgainstIdleRank(t *testing.T) {
	for _, cfg := range []p2p.Config{{}, {Device: "shm"}, {Device: "tcp"}, {Device: "tcp", Transport: "tmsrq"}} {
		t.Run(cmp.Or(cfg.Device, "loop")+cfg.Transport, func(t *testing.T) {
			skipUnlessLinux(t, cfg.Device)
			cfg.Progress = p2p.ProgressManual
			message := bytes.Repeat([]byte("0123456789abcdef"), 256<<10)
			var idle sync.WaitGroup
			idle.Add(1)
			idling := make(chan struct{})
			p2ptest.RunConfig(t, 2, cfg, func(w *p2p.World) {
				if w.Rank() == 0 {
					defer idle.Done()
					impatient(t, w, message, idling)
				} else {
					idler(t, w, message, idling, &idle)
				}
			})
		})
	}
}

func impatient(t *testing.T, w *p2p.World, message []byte, idling <-chan struct{}) {
	_, err := w.Recv(background, 1, p2p.MaskExact, nil) // the rendezvous request has arrived too, then
	require.NoError(t, err)
	require.NoError(t, w.Send(background, 1, 4, nil))
	pollUntil(t, w, idling)
	ctx, cancel := context.WithTimeout(background, 20*time.Millisecond)
	defer cancel()
	buf := make([]byte, len(message))
	// Over shared memory the read needs no answer.
	if _, err = w.Recv(ctx, 2, p2p.MaskExact, buf); err == nil {
		require.True(t, bytes.Equal(message, buf))
	} else {
		require.ErrorIs(t, err, context.DeadlineExceeded)
	}
	ctx, cancel = context.WithCancel(background)
	defer cancel()
	before := w.Metrics().RndvSent
	go func() { // cancels once it is at the receiver, not sooner
		for ctx.Err() == nil && w.Metrics().RndvSent == before {
			time.Sleep(time.Millisecond)
		}
		cancel()
	}()
	err = w.Send(ctx, 1, 3, message)
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, err, p2p.ErrMaybeDelivered)
	require.NoError(t, w.Send(background, 1, 3, []byte("small")))
}

// pollUntil makes progress until done closes: messages sent so far may need it.
func pollUntil(t *testing.T, w *p2p.World, done <-chan struct{}) {
	r := w.Irecv(99, p2p.MaskExact, nil)
	for waiting := true; waiting; {
		_, _, err := r.Test()
		require.NoError(t, err)
		select {
		case <-done:
			waiting = false
		case <-time.After(time.Microsecond):
		}
	}
	r.Cancel()
	_, err := r.Wait(background)
	require.ErrorIs(t, err, p2p.ErrCanceled)
}

func idler(t *testing.T, w *p2p.World, message []byte, idling chan<- struct{}, idle *sync.WaitGroup) {
	large := w.Isend(0, 2, message)
	require.NoError(t, w.Send(background, 0, 1, nil))
	_, err := w.Recv(background, 4, p2p.MaskExact, nil)
	require.NoError(t, err)
	close(idling)
	idle.Wait()
	buf := make([]byte, len(message))
	st, err := w.Recv(background, 3, p2p.MaskExact, buf)
	require.NoError(t, err)
	require.Equal(t, "small", string(buf[:st.Len]))
	large.Cancel() // unless it was received
	if _, err := large.Wait(background); err != nil {
		require.ErrorIs(t, err, p2p.ErrCanceled)
	}
}
